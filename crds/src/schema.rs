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
    }
    crd
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
