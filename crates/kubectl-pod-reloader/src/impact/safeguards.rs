//! What keeps an object as it is: its protection, and the source that it is a copy of.

use pod_reloader_core::protect::{PROTECT, Protection};
use pod_reloader_core::reference::Reference;
use serde::Serialize;

use super::users::Users;
use crate::cluster::Cluster;
use crate::objects::Tags;
use crate::operators::Operators;
use crate::print::Text;
use crate::protection::{meaning, protection};
use crate::ready::{self, Own};
use crate::syncs::Sync;

/// The protection of an object, and its part in copying.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Safeguards {
    /// The value of the label that protects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    protect: Option<String>,
    /// The meaning of the label in words, or the reason why it protects nothing.
    #[serde(skip)]
    meaning: Option<String>,
    /// The users, if it is protected as long as it has some.
    #[serde(flatten)]
    users: Option<Users>,
    /// The object that it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_of: Option<String>,
    /// True if a ClusterConfigSync undoes edits of the copy, as far as can be seen.
    #[serde(skip)]
    is_updated: bool,
    /// The ClusterConfigSyncs that copy it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copied_by: Vec<Sync>,
}

impl Safeguards {
    /// Finds out what keeps an object with these tags as it is. Also returns everything that cannot be seen.
    pub(super) async fn of(
        cluster: &Cluster,
        operators: &Operators,
        object: &Reference,
        Tags { protect, copy_of }: Tags,
    ) -> (Self, Vec<String>) {
        let mut unseen = Vec::new();
        let protection = protect
            .as_deref()
            .map(|it| protection(it, object, operators));
        let users = match protection {
            Some(Ok(Protection::InUse)) => Some(Users::of(cluster, object).await),
            _ => None,
        };
        unseen.extend(users.iter().flat_map(|it| it.unseen.iter().cloned()));
        let syncs = match operators.any(|it| it.args.switches_on(Sync::CONTROLLER)) {
            Some(false) => Ok(Vec::new()),
            Some(true) | None => ready::list::<Sync>(cluster, None).await,
        };
        let unlisted = syncs.as_ref().err();
        unseen.extend(unlisted.map(|error| format!("ClusterConfigSyncs: {error}")));
        let is_updated = copy_of.as_ref().is_some_and(|source| {
            let all = syncs.as_deref();
            all.map_or(true, |all| all.iter().any(|it| it.copies(source)))
        });
        let syncs = syncs.unwrap_or_default().into_iter();
        let safeguards = Self {
            meaning: protection.map(|it| match it {
                Ok(protection) => {
                    let meaning = meaning(protection, operators);
                    format!(
                        "It has the label {PROTECT}={}: {meaning}.",
                        protection.as_str()
                    )
                }
                Err(nothing) => format!("Its {nothing}."),
            }),
            protect,
            users,
            is_updated,
            copy_of: copy_of.map(|source| source.to_string()),
            copied_by: syncs.filter(|it| it.copies(object)).collect(),
        };
        (safeguards, unseen)
    }

    /// Returns true if it is not known whether there are other users.
    pub(super) fn lack_users(&self) -> bool {
        self.users.as_ref().is_some_and(|it| !it.unseen.is_empty())
    }

    /// Adds a line for each.
    pub(super) fn lines(&self, text: &mut Text) {
        let copy = self.copy_of.as_ref().map(|source| match self.is_updated {
            true => format!("It is a copy of {source}: edits are undone, so change the source."),
            false => {
                format!("It was a copy of {source}, and no ClusterConfigSync updates it any more.")
            }
        });
        let source = self.copied_by.iter();
        let source = source.map(|sync| {
            format!(
                "ClusterConfigSync {} copies it: {}.",
                sync.name,
                sync.progress()
            )
        });
        for line in self.meaning.iter().cloned().chain(copy).chain(source) {
            text.line([line.into()]);
        }
    }

    /// Adds lists of the users.
    pub(super) fn sections(&self, text: &mut Text) {
        let Some(users) = &self.users else {
            return;
        };
        let nobody = ["nobody".to_owned()];
        let now: &[_] = match &*users.used_by {
            [] if users.unseen.is_empty() => &nobody,
            users => users,
        };
        text.section("Used by", now);
        text.section("Used later by the pods of", &users.used_later_by);
    }
}
