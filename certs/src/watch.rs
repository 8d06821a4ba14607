//! What the loop looks at: the Secret and the objects with bundles, as they were last seen.

use crate::consumer::{Consumer, Target};
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Error, watch_object};

/// A change, or trouble with a watch (which is tried again).
#[derive(Debug)]
pub enum Seen {
    /// The Secret, if there is one.
    Secret(Option<Box<Secret>>),
    /// A target by its number, if it exists.
    Target(usize, Option<Box<DynamicObject>>),
    /// A watch failed.
    Trouble(String),
}

/// Follows one object each, so that rights to these objects are enough.
pub fn watch(secret: Option<(Api<Secret>, &str)>, targets: &[(Target, Api<DynamicObject>)]) -> Watches {
    let secret = secret
        .map(|(api, name)| changes(watch_object(api, name), |secret| Seen::Secret(secret.map(Box::new))));
    let targets = targets.iter().enumerate().map(|(number, (target, api))| {
        changes(watch_object(api.clone(), &target.name), move |object| {
            Seen::Target(number, object.map(Box::new))
        })
    });
    select_all(secret.into_iter().chain(targets))
}

/// All watches together.
pub type Watches = SelectAll<BoxStream<'static, Seen>>;

fn changes<T: Send + 'static>(
    stream: impl Stream<Item = Result<Option<T>, Error>> + Send + 'static,
    seen: impl Fn(Option<T>) -> Seen + Send + Sync + 'static,
) -> BoxStream<'static, Seen> {
    stream
        .default_backoff()
        .map(move |change| change.map_or_else(|error| Seen::Trouble(error.to_string()), &seen))
        .boxed()
}

/// What is known of an object.
#[derive(Clone, Debug)]
pub enum Known<T> {
    /// Nothing yet. It must not be taken for absent.
    Unseen,
    /// It does not exist.
    Absent,
    /// It exists.
    Present(T),
}

impl<T> Known<T> {
    /// As an answer of the API server.
    pub fn from_answer(object: Option<T>) -> Self {
        object.map_or(Self::Absent, Self::Present)
    }

    /// The object, if it is known to exist.
    pub fn present(&self) -> Option<&T> {
        if let Self::Present(object) = self { Some(object) } else { None }
    }

    fn is_seen(&self) -> bool {
        !matches!(self, Self::Unseen)
    }
}

/// The last state of everything that is watched.
#[derive(Debug)]
pub struct Snapshot {
    /// The Secret.
    pub secret: Known<Secret>,
    /// Each target.
    pub targets: Vec<Known<DynamicObject>>,
}

impl Snapshot {
    /// Nothing was seen yet; a Secret that is not watched counts as absent.
    pub fn new(secret: bool, targets: usize) -> Self {
        Self {
            secret: if secret { Known::Unseen } else { Known::Absent },
            targets: vec![Known::Unseen; targets],
        }
    }

    /// Whether everything was seen.
    pub fn complete(&self) -> bool {
        self.secret.is_seen() && self.targets.iter().all(Known::is_seen)
    }

    /// Takes a change in; trouble is handed back.
    pub fn take(&mut self, seen: Seen) -> Option<String> {
        match seen {
            Seen::Secret(secret) => self.secret = Known::from_answer(secret.map(|secret| *secret)),
            Seen::Target(number, object) => {
                self.targets[number] = Known::from_answer(object.map(|object| *object));
            }
            Seen::Trouble(error) => return Some(error),
        }
        None
    }

    /// The targets that exist and call webhooks, with their numbers.
    pub fn consumers(&self, targets: &[(Target, Api<DynamicObject>)]) -> Vec<(usize, Consumer)> {
        let read = |(number, object): (usize, &Known<DynamicObject>)| {
            Some((number, targets[number].0.read(object.present()?)?))
        };
        self.targets.iter().enumerate().filter_map(read).collect()
    }
}
