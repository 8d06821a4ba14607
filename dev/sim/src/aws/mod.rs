//! AWS: the part of the EC2 Query API (2016-11-15) that moves elastic IP addresses between instances.
//!
//! Written from the service model that botocore ships, the EC2 reference and error pages, and recorded
//! replies in public issues; `docs/simulators.md` lists what is shown and what is not.

mod addresses;
mod associations;
mod errors;
mod instances;
mod lifecycle;
mod params;
mod xml;

use crate::faults;
use crate::http::{ApiError, HttpRequest, Reply};
use crate::limits::TooMany;
use crate::log::About;
use crate::model::State;
use crate::model::operations::guid;
use crate::model::things::Cloud;
use crate::permissions::Need;
use crate::pipeline::{Api, Context, Decoded};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use params::Params;
use std::collections::BTreeMap;
use xml::Xml;

/// The EC2 API.
pub struct Aws;

/// Actions, and whether they change things.
const ACTIONS: [(&str, bool); 11] = [
    ("AllocateAddress", true),
    ("AssociateAddress", true),
    ("DescribeAddresses", false),
    ("DescribeInstances", false),
    ("DescribeNetworkInterfaces", false),
    ("DisassociateAddress", true),
    ("ReleaseAddress", true),
    ("RunInstances", true),
    ("StartInstances", true),
    ("StopInstances", true),
    ("TerminateInstances", true),
];

/// A call of an action.
pub struct Call {
    action: &'static str,
    params: Params,
    /// The region that the request was signed for.
    region: Option<String>,
}

impl Call {
    /// Whether a thing of that region is visible: each region is a world of its own.
    fn sees(&self, region: &str) -> bool {
        self.region.as_deref().is_none_or(|own| own == region)
    }

    fn region_or_default(&self) -> String {
        self.region.clone().unwrap_or_else(|| "eu-west-1".to_owned())
    }
}

impl Api for Aws {
    const CLOUD: Cloud = Cloud::Aws;
    type Request = Call;

    fn caller(http: &HttpRequest) -> Option<String> {
        credential(http)?.first().map(|&key| key.to_owned())
    }

    fn decode(http: &HttpRequest) -> Result<Decoded<Call>, ApiError> {
        let params = Params::of(http);
        let name = params.get("Action").unwrap_or_default().to_owned();
        let Some((action, mutating)) = ACTIONS.into_iter().find(|(known, _)| *known == name) else {
            let message = format!("The action {name} is not valid for this web service.");
            return Err(errors::error("InvalidAction", message));
        };
        let target = ["AllocationId", "AssociationId", "PublicIp", "InstanceId.1", "Filter.1.Value.1"];
        let named = target.into_iter().filter_map(|name| params.get(name));
        let also = ["NetworkInterfaceId", "InstanceId"].into_iter().filter_map(|name| params.get(name));
        Ok(Decoded {
            action,
            target: named.take(1).chain(also).collect::<Vec<_>>().join(" "),
            mutating,
            request: Call {
                action,
                region: credential(http).and_then(|scope| Some((*scope.get(2)?).to_owned())),
                params,
            },
        })
    }

    fn needs(request: &Call) -> Vec<Need> {
        let region = request.region_or_default();
        let resource = match request.params.get("AllocationId") {
            Some(id) => format!("elastic-ip/{id}"),
            None => "*/*".to_owned(),
        };
        let resource = format!("arn:aws:ec2:{region}:ACCOUNT:{resource}");
        vec![Need::new(format!("ec2:{}", request.action), resource)]
    }

    fn forbidden(need: &Need, call: &faults::Call, state: &State) -> ApiError {
        let account = &state.settings.aws.account;
        let user = format!("arn:aws:iam::{account}:user/{}", call.caller);
        let resource = need.resource.replace("ACCOUNT", account);
        let action = &need.permission;
        let encoded = URL_SAFE_NO_PAD.encode(format!("{user} {action} {resource} {}", "0".repeat(160)));
        errors::error(
            "UnauthorizedOperation",
            format!(
                "You are not authorized to perform this operation. User: {user} is not authorized to perform: \
                 {action} on resource: {resource} because no identity-based policy allows the {action} action. \
                 Encoded authorization failure message: {encoded}"
            ),
        )
    }

    fn throttled(_: TooMany, _: &State) -> ApiError {
        errors::error("RequestLimitExceeded", "Request limit exceeded.")
    }

    fn error(code: &str, message: Option<&str>, status: Option<u16>) -> ApiError {
        let (known, words) = errors::by_code(code);
        ApiError::new(status.unwrap_or(known), code, message.unwrap_or(words))
    }

    fn about(request: &Call, state: &State) -> About {
        associations::about(request, state)
    }

    fn answer(request: Call, context: &mut Context) -> Result<Reply, ApiError> {
        if request.params.flag("DryRun") == Some(true) {
            return Err(Self::error("DryRunOperation", None, None));
        }
        match request.action {
            "AllocateAddress" => addresses::allocate(context, &request),
            "AssociateAddress" => associations::associate(context, &request),
            "DescribeAddresses" => addresses::describe(context, &request),
            "DescribeInstances" => instances::describe(context, &request),
            "DescribeNetworkInterfaces" => instances::describe_interfaces(context, &request),
            "DisassociateAddress" => associations::disassociate(context, &request),
            "ReleaseAddress" => addresses::release(context, &request),
            "RunInstances" => lifecycle::run(context, &request),
            action => lifecycle::change(context, &request, action),
        }
    }

    fn write_error(error: &ApiError, request_id: u64) -> Reply {
        errors::write(error, request_id)
    }
}

/// Parts of the credential in a signature: access key id, date, region, service. Signatures are not
/// checked.
fn credential(http: &HttpRequest) -> Option<Vec<&str>> {
    let (_, rest) = http.header("authorization")?.split_once("Credential=")?;
    Some(rest.split(',').next()?.split('/').collect())
}

/// A reply to an action that went well.
fn success(action: &str, request: u64, inside: impl FnOnce(&mut Xml)) -> Reply {
    let mut xml = Xml::default();
    xml.leaf("requestId", guid(request));
    inside(&mut xml);
    let body = xml.into_text();
    Reply {
        status: 200,
        headers: Vec::new(),
        content_type: "text/xml;charset=UTF-8",
        body: format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">{body}</{action}Response>"
        ),
    }
}

fn write_tags(xml: &mut Xml, tags: &BTreeMap<String, String>) {
    if !tags.is_empty() {
        xml.list("tagSet", tags, |xml, (key, value)| {
            xml.leaf("key", key).leaf("value", value);
        });
    }
}
