//! Takes in what a watch sees: everything that there is, and then each change.

/// Something that takes in the objects of a kind, as a watch lists them and sees them change.
///
/// A list begins with [`Follower::listing`], brings each object by [`Follower::listed`], and is complete with
/// [`Follower::all_listed`]. If it fails, it is begun again. Changes after that come by [`Follower::seen`] and
/// [`Follower::gone`], until the objects are listed again.
///
/// # Guarantees
///
/// What [`Follower::all_listed`] gets is of one complete list. Nothing of a list that has failed is in it.
///
/// # Caveats
///
/// An object that went while nobody watched never comes by [`Follower::gone`]. It is missing in the next complete list,
/// and only there.
pub trait Follower<K> {
    /// What is collected of an object of a list.
    type Noted;

    /// What is collected of all objects of a list.
    type List: Default + Extend<Self::Noted>;

    /// Takes in that a list begins.
    fn listing(&mut self) {}

    /// Takes in an object of a list. Returns what is collected of it. `None` if nothing is.
    fn listed(&mut self, object: K) -> Option<Self::Noted>;

    /// Takes in that a list is complete: anything that it has not brought is gone.
    fn all_listed(&mut self, list: Self::List);

    /// Takes in an object that is new or has changed. Unless it says otherwise, as an object of a list.
    fn seen(&mut self, object: K) {
        drop(self.listed(object));
    }

    /// Takes in that an object is gone. This is its last state.
    fn gone(&mut self, object: K);
}
