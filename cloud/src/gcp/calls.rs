//! The requests, one function each.

use super::model::{INTERFACE, Place};
use super::{Gcp, errors, names};
use crate::{Call, Class, Error};
use google_cloud_compute_v1::model::{AccessConfig, Address, Instance, Operation, addresses_scoped_list};
use google_cloud_gax::error::Error as SdkError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const PAGE: u32 = 500;
/// Values of a filter: more make a URL too long, and then everything is listed.
const MOST_VALUES: usize = 100;
/// How long to leave an operation alone that `wait` did not wait for.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Addresses of all regions, and the regions that did not answer.
#[derive(Debug, Default)]
pub struct Addresses {
    pub found: Vec<Address>,
    pub unreachable: Vec<String>,
}

impl Gcp {
    /// Reads; credentials that are refused are read anew the next time.
    pub async fn get<T: Send, F>(
        &self,
        action: &'static str,
        deadline: Instant,
        send: impl FnOnce(Arc<super::Clients>) -> F + Send,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, SdkError>> + Send,
    {
        let answer = self.gate.read(action, deadline, self.request(action, send)).await;
        self.heed(answer).await
    }

    /// Changes things, and waits until it is done.
    async fn change<F>(
        &self,
        action: &'static str,
        place: &Place,
        call: &Call<'_>,
        send: impl FnOnce(Arc<super::Clients>) -> F + Send,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<Operation, SdkError>> + Send,
    {
        let answer = self.gate.write(action, call, self.request(action, send)).await;
        let operation = self.heed(answer).await?;
        self.wait(action, place, operation, call.deadline).await
    }

    async fn request<T: Send, F>(
        &self,
        action: &'static str,
        send: impl FnOnce(Arc<super::Clients>) -> F + Send,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, SdkError>> + Send,
    {
        let clients = self.clients().await?;
        send(clients).await.map_err(|error| errors::of(action, &error))
    }

    async fn heed<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if answer.as_ref().is_err_and(|error| error.class == Class::Denied) {
            self.forget_credentials().await;
        }
        answer
    }

    /// Waits until an operation is done and says how it ended: a request that was accepted may still fail.
    async fn wait(
        &self,
        action: &'static str,
        place: &Place,
        mut operation: Operation,
        deadline: Instant,
    ) -> Result<(), Error> {
        let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[3]));
        loop {
            if operation.status.as_ref().and_then(|status| status.name()) == Some("DONE") {
                return errors::of_operation(action, &operation);
            }
            let Some(name) = operation.name.clone() else {
                return Err(Error::new(
                    Class::Transient,
                    format!("{action}: accepted, but without an operation"),
                ));
            };
            let asked = self
                .get("zoneOperations.wait", deadline, |clients| {
                    let request = clients.operations.wait().set_operation(name);
                    request.set_project(&place.project).set_zone(&place.zone).send()
                })
                .await;
            operation = asked.map_err(Error::of_accepted)?;
            // It may come back early; then it is not asked again at once.
            if operation.status.as_ref().and_then(|status| status.name()) != Some("DONE") {
                sleep(pauses.next().copied().unwrap_or(PAUSES[3])).await;
            }
        }
    }

    /// Addresses of all regions with these IPs.
    pub async fn addresses(&self, ips: &[String], deadline: Instant) -> Result<Addresses, Error> {
        let mut all = Addresses::default();
        let filter = any_of("address", ips);
        let mut token: Option<String> = None;
        loop {
            let page = self
                .get("addresses.aggregatedList", deadline, |clients| {
                    let request = clients.addresses.aggregated_list().set_project(self.project());
                    let request = request.set_max_results(PAGE).set_or_clear_page_token(token.take());
                    request.set_or_clear_filter(filter.clone()).send()
                })
                .await?;
            all.unreachable.extend(page.unreachables);
            for (scope, list) in page.items {
                if list.warning.is_some_and(|warning| is_missing(&warning)) {
                    all.unreachable.push(scope);
                }
                all.found.extend(list.addresses);
            }
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// Instances of all zones of a project with these names.
    pub async fn instances(
        &self,
        project: &str,
        named: &[String],
        deadline: Instant,
    ) -> Result<Vec<Instance>, Error> {
        let mut found = Vec::new();
        let filter = any_of("name", named);
        let mut token: Option<String> = None;
        loop {
            let page = self
                .get("instances.aggregatedList", deadline, |clients| {
                    let request = clients.instances.aggregated_list().set_project(project);
                    let request = request.set_max_results(PAGE).set_or_clear_page_token(token.take());
                    request.set_or_clear_filter(filter.clone()).send()
                })
                .await?;
            found.extend(page.items.into_values().flat_map(|list| list.instances));
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(found);
            }
        }
    }

    /// One instance; none if there is none.
    pub async fn instance(&self, place: &Place, deadline: Instant) -> Result<Option<Instance>, Error> {
        self.get("instances.get", deadline, |clients| async move {
            let request = clients.instances.get().set_project(&place.project);
            match request.set_zone(&place.zone).set_instance(&place.name).send().await {
                Ok(instance) => Ok(Some(instance)),
                Err(error) if error.http_status_code() == Some(404) => Ok(None),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Gives the interface an address.
    pub async fn add(
        &self,
        place: &Place,
        config: AccessConfig,
        request_id: String,
        call: &Call<'_>,
    ) -> Result<(), Error> {
        self.change("instances.addAccessConfig", place, call, |clients| {
            let request = clients.instances.add_access_config().set_project(&place.project);
            let request =
                request.set_zone(&place.zone).set_instance(&place.name).set_network_interface(INTERFACE);
            request.set_request_id(request_id).set_body(config).send()
        })
        .await
    }

    /// Takes the access config of a name away. If there is none of that name, nothing happens.
    pub async fn delete(
        &self,
        place: &Place,
        interface: &str,
        name: &str,
        request_id: String,
        call: &Call<'_>,
    ) -> Result<(), Error> {
        self.change("instances.deleteAccessConfig", place, call, |clients| {
            let request = clients.instances.delete_access_config().set_project(&place.project);
            let request =
                request.set_zone(&place.zone).set_instance(&place.name).set_network_interface(interface);
            request.set_access_config(name).set_request_id(request_id).send()
        })
        .await
    }

    /// Whether the last that was done to an instance's access config was to take its own address away, or one
    /// of ours that had come in its place: then it is to have one again, whoever it was that did not get any
    /// further.
    pub async fn had_own_address(&self, place: &Place, id: u64, deadline: Instant) -> Result<bool, Error> {
        let mut last: Option<Operation> = None;
        let mut token: Option<String> = None;
        loop {
            let page = self
                .get("zoneOperations.list", deadline, |clients| {
                    let request = clients.operations.list().set_project(&place.project).set_zone(&place.zone);
                    let request = request.set_max_results(PAGE).set_or_clear_page_token(token.take());
                    request.set_filter(format!("targetId = {id}")).send()
                })
                .await?;
            let changes = page.items.into_iter().filter(changes_access);
            last = last.into_iter().chain(changes).max_by_key(|one| (one.insert_time.clone(), one.id));
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                let by = last.and_then(|last| last.client_operation_id);
                return Ok(by.is_some_and(|by| names::is_marked(&by)));
            }
        }
    }
}

/// Whether an operation changed an access config.
fn changes_access(operation: &Operation) -> bool {
    let kind = operation.operation_type.as_deref().unwrap_or_default().to_ascii_lowercase();
    operation.error.is_none() && kind.ends_with("accessconfig")
}

fn is_missing(warning: &addresses_scoped_list::Warning) -> bool {
    warning.code.as_ref().and_then(|code| code.name()) != Some("NO_RESULTS_ON_PAGE")
}

/// A filter for one of several values; none, which is all, if they are too many.
fn any_of(field: &str, values: &[String]) -> Option<String> {
    if values.len() > MOST_VALUES {
        return None;
    }
    let each: Vec<String> = values.iter().map(|value| format!("({field} = \"{value}\")")).collect();
    Some(each.join(" OR "))
}
