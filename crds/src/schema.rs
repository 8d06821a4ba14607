//! What the derive cannot say: a last pass over the generated schema.

use crate::rules;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// Completes a generated CRD: root rules in, `nullable` out.
pub fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else {
            continue;
        };
        for property in root.properties.iter_mut().flat_map(|p| p.values_mut()) {
            tidy(property);
        }
        root.x_kubernetes_validations = Some(vec![rules::name_fits_a_label()]);
        for text in rules::TEXTS {
            if let Some(field) = find(root, text.path) {
                text.demand(field);
            }
        }
        if let Some(labels) = find(root, "spec/nodeSelector") {
            labels.x_kubernetes_validations = Some(vec![rules::label_keys()]);
        }
    }
    crd
}

/// The schema of a field; `*` is each item of a list.
fn find<'s>(root: &'s mut JSONSchemaProps, path: &str) -> Option<&'s mut JSONSchemaProps> {
    path.split('/').try_fold(root, |schema, step| match (step, &mut schema.items) {
        ("*", Some(JSONSchemaPropsOrArray::Schema(items))) => Some(&mut **items),
        _ => schema.properties.as_mut()?.get_mut(step),
    })
}

/// Drops `nullable`: an explicit null (`workloadRef:` left empty in a template) then means "absent", as in every schema
/// written by hand: the API server prunes it and fills in the default.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    // Doc comments are broken into lines for the source; `kubectl explain` breaks them anew.
    schema.description = schema.description.take().map(|text| text.replace('\n', " "));
    for child in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        tidy(child);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule whose field has another name by now would be lost without a word.
    #[test]
    fn every_rule_finds_its_field() {
        for manifest in crate::manifests() {
            for mut version in manifest.crd.spec.versions {
                let root = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
                let root = root.expect("a schema");
                for text in rules::TEXTS {
                    let field = find(root, text.path).expect(text.path);
                    assert_eq!(field.max_length, Some(text.max_length), "{}", text.path);
                    assert!(
                        field.pattern.is_some() || field.x_kubernetes_validations.is_some(),
                        "{}",
                        text.path
                    );
                }
                assert!(
                    find(root, "spec/nodeSelector").is_some_and(|s| s.x_kubernetes_validations.is_some())
                );
                assert!(find(root, "spec/nowhere").is_none() && find(root, "spec/cloud/*").is_none());
            }
        }
    }
}
