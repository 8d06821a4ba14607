//! Reviews as the API server sends them: a pod's is about 10 KB.

use serde_json::{Value, json};

/// Something to measure.
pub struct Case {
    pub name: &'static str,
    pub path: &'static str,
    pub body: fn() -> Vec<u8>,
}

pub const CASES: [Case; 3] = [
    Case { name: "pod, not ours", path: "/mutate-pods", body: || pod("elsewhere") },
    Case { name: "pod, injected", path: "/mutate-pods", body: || pod("web") },
    Case { name: "allocation, validated", path: "/validate-allocations", body: allocation },
];

/// What is indexed: so many addresses, twenty to an object, of which the first refers to a workload.
pub fn spec(number: usize) -> Value {
    let addresses: Vec<String> =
        (0..20).map(|n| format!("2001:db8:{:x}:{:x}::{n:x}", number >> 16, number & 0xffff)).collect();
    let workload = json!({ "kind": "StatefulSet", "name": if number == 0 { "web".to_owned() } else { format!("w{number}") },
                           "namespace": "default" });
    json!({ "reservedIPs": addresses, "cloud": { "provider": "gcp" }, "workloadRef": workload })
}

fn review(group: &str, version: &str, kind: &str, resource: &str, object: &Value) -> Vec<u8> {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": group, "version": version, "kind": kind },
            "resource": { "group": group, "version": version, "resource": resource },
            "requestKind": { "group": group, "version": version, "kind": kind },
            "requestResource": { "group": group, "version": version, "resource": resource },
            "name": "x", "namespace": "default", "operation": "CREATE",
            "userInfo": { "username": "system:serviceaccount:kube-system:replicaset-controller",
                          "groups": ["system:serviceaccounts", "system:authenticated"] },
            "object": object, "oldObject": null, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    })
    .to_string()
    .into_bytes()
}

fn allocation() -> Vec<u8> {
    let addresses: Vec<String> = (1..=20).map(|n| format!("203.0.113.{n}")).collect();
    let object = json!({ "apiVersion": "netinfra.darkbrains.com/v1alpha1", "kind": "NetIPAllocation",
        "metadata": { "name": "new" },
        "spec": { "reservedIPs": addresses, "cloud": { "provider": "gcp", "region": "us-central1" },
                  "nodeSelector": { "role": "public-node" }, "reconcileInterval": 30,
                  "workloadRef": { "kind": "Deployment", "name": "web", "namespace": "default" } } });
    review("netinfra.darkbrains.com", "v1alpha1", "NetIPAllocation", "netipallocations", &object)
}

fn pod(owner: &str) -> Vec<u8> {
    review("", "v1", "Pod", "pods", &pod_of(owner))
}

/// A pod of two containers, as Deployments of the world have them.
pub fn pod_of(owner: &str) -> Value {
    let env: Vec<Value> =
        (0..30).map(|n| json!({ "name": format!("SETTING_{n}"), "value": format!("a value of ordinary length, number {n}") })).collect();
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080, "scheme": "HTTP" }, "timeoutSeconds": 1,
                        "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 });
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/service:v1.2.3", "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", "--log-level=info"], "env": env,
            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
            "livenessProbe": probe, "readinessProbe": probe,
            "volumeMounts": [{ "name": "config", "mountPath": "/etc/config" }],
        })
    };
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "generateName": "web-", "namespace": "default",
            "labels": { "app": "web", "team": "voice", "pod-template-hash": "5d4f8c7b9" },
            "annotations": { "checksum/config": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "controller": true,
                                  "uid": "705ab4f5-6393-11e8-b7cc-42010a800003", "blockOwnerDeletion": true }],
        },
        "spec": {
            "containers": [container("main"), container("sidecar")],
            "volumes": [{ "name": "config", "configMap": { "name": "config", "defaultMode": 420 } }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "schedulerName": "default-scheduler", "priority": 0,
            "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }],
        },
    })
}
