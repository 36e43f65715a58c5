//! A limited amount (bytes, places) shared by the clients of several groups, so that no client and
//! no group can take all of it.
//!
//! Each group (a listener, a role) has a reserve that no other group can use; the rest is common to
//! all. One client has at most its share of everything. A client may have a small extra allowance,
//! so that its small requests never wait for those of others.
//!
//! Expected faults: clients that take as much as they can and give nothing back, of one group or of
//! several. No clocks and no waiting here: waiting is the caller's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::client_id::ClientId;

/// Rules for sharing an amount.
#[derive(Clone, Copy, Debug)]
pub struct ShareRules {
    /// The whole amount, reserves included; more if `least_common` and the reserves need more.
    pub total: u64,
    /// Reserve of each group.
    pub group_reserve: u64,
    /// Minimum of the common part.
    pub least_common: u64,
    /// Maximum of one client.
    pub client_limit: u64,
    /// Part of a client's limit kept for [`Urgency::FirstOfClient`].
    pub client_first: u64,
    /// Extra allowance of each client on top of the total, for requests that fit into it as a
    /// whole.
    pub client_beside: u64,
}

/// Urgency of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// As urgent as the client's other requests.
    Ordinary,
    /// The client's request to finish first.
    FirstOfClient,
    /// The group's request to finish first: it may use the reserve.
    FirstOfGroup,
}

/// The shared amount. Clones are the same, on any thread.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: ShareRules,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    groups: u64,
    common: u64,
    /// All that is taken, from any part.
    all: u64,
}

/// Clients with a reserve of their own. Clones are the same group.
#[derive(Clone, Debug)]
pub struct Group {
    shares: Shares,
    own: Arc<GroupOwn>,
}

#[derive(Debug, Default)]
struct GroupOwn {
    reserve_used: Mutex<u64>,
    turns: Turns,
    clients: Mutex<HashMap<ClientId, Weak<ClientOwn>>>,
}

#[derive(Debug, Default)]
struct ClientUsed {
    /// Used of its limit.
    all: u64,
    /// Used of its extra allowance.
    beside: u64,
}

/// One client of a group. Clients of the same identity are the same.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientOwn>);

#[derive(Debug)]
struct ClientOwn {
    group: Group,
    used: Mutex<ClientUsed>,
    turns: Turns,
}

/// A queue across threads: its first is the one that may use what is kept for the first. There is
/// no wake: who waits looks again, as it does for what is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    next: u64,
    waiting: VecDeque<u64>,
}

/// A place in the queue; left on drop.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    number: u64,
}

impl Turns {
    /// A place at the end.
    pub(crate) fn enter(&self) -> Turn {
        let mut queue = lock(&self.0);
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push_back(number);
        Turn { turns: self.clone(), number }
    }
}

impl Turn {
    /// True if all that came before have left.
    pub(crate) fn is_first(&self) -> bool {
        lock(&self.turns.0).waiting.front() == Some(&self.number)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.turns.0).waiting.retain(|number| *number != self.number);
    }
}

/// A part in use; freed on drop.
#[derive(Debug)]
pub struct Taken {
    client: Client,
    common: u64,
    reserve: u64,
    beside: u64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShareRules {
    fn common(&self, groups: u64) -> u64 {
        self.total.saturating_sub(groups * self.group_reserve).max(self.least_common)
    }
}

impl Shares {
    /// An amount of which nothing is taken.
    pub fn new(rules: ShareRules) -> Self {
        Self(Arc::new(Shared { rules, used: Mutex::default() }))
    }

    /// The amount in use.
    pub fn used(&self) -> u64 {
        lock(&self.0.used).all
    }

    /// Adds a group.
    pub fn group(&self) -> Group {
        lock(&self.0.used).groups += 1;
        Group { shares: self.clone(), own: Arc::default() }
    }
}

impl Group {
    /// The client with that identity.
    pub fn client(&self, id: ClientId) -> Client {
        let mut clients = lock(&self.own.clients);
        let known = clients.get(&id).and_then(Weak::upgrade);
        Client(known.unwrap_or_else(|| {
            clients.retain(|_, own| own.strong_count() > 0);
            let own =
                Arc::new(ClientOwn { group: self.clone(), used: Mutex::default(), turns: Turns::default() });
            clients.insert(id, Arc::downgrade(&own));
            own
        }))
    }
}

impl Group {
    /// True if it is the same group.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.own, &other.own)
    }

    /// Its requests, one after the other.
    pub(crate) fn turns(&self) -> &Turns {
        &self.own.turns
    }
}

impl Client {
    /// Its requests, one after the other.
    pub(crate) fn turns(&self) -> &Turns {
        &self.0.turns
    }

    /// An empty part, to which more can be added.
    pub fn nothing(&self) -> Taken {
        Taken { client: self.clone(), common: 0, reserve: 0, beside: 0 }
    }

    /// Takes `amount`, all or nothing, with the urgency [`Urgency::FirstOfGroup`].
    pub fn take(&self, amount: u64) -> Option<Taken> {
        let mut taken = self.nothing();
        taken.try_add(amount, Urgency::FirstOfGroup).then_some(taken)
    }

    /// True if the client's limit allows `amount` more for its first request.
    pub fn has_share(&self, amount: u64) -> bool {
        lock(&self.0.used).all + amount <= self.rules().client_limit
    }

    /// The used fraction of its limit, and of the common part: from 0 to 1.
    pub(crate) fn fill(&self) -> (f64, f64) {
        let rules = self.rules();
        let part = |used: u64, of: u64| if of == 0 { 1.0 } else { (used as f64 / of as f64).min(1.0) };
        let own = part(lock(&self.0.used).all, rules.client_limit - rules.client_first);
        let used = lock(&self.0.group.shares.0.used);
        (own, part(used.common, rules.common(used.groups)))
    }

    fn rules(&self) -> &ShareRules {
        &self.0.group.shares.0.rules
    }
}

impl Taken {
    /// True if a part is of the group's reserve.
    pub(crate) fn uses_reserve(&self) -> bool {
        self.reserve > 0
    }

    /// Adds `amount`, all or nothing; `false` if there is not enough.
    pub fn try_add(&mut self, amount: u64, urgency: Urgency) -> bool {
        let client = &*self.client.0;
        let (group, rules) = (&client.group, self.client.rules());
        let mut own = lock(&client.used);
        let kept = if urgency == Urgency::Ordinary { rules.client_first } else { 0 };
        if own.all + amount > rules.client_limit - kept {
            return false;
        }
        let mut used = lock(&group.shares.0.used);
        if used.common + amount <= rules.common(used.groups) {
            used.common += amount;
            self.common += amount;
        } else if own.beside + amount <= rules.client_beside {
            own.beside += amount;
            self.beside += amount;
        } else {
            let mut reserve_used = lock(&group.own.reserve_used);
            if urgency != Urgency::FirstOfGroup || *reserve_used + amount > rules.group_reserve {
                return false;
            }
            *reserve_used += amount;
            self.reserve += amount;
        }
        own.all += amount;
        used.all += amount;
        true
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let client = &*self.client.0;
        let group = &client.group;
        let all = self.common + self.reserve + self.beside;
        let mut own = lock(&client.used);
        own.all -= all;
        own.beside -= self.beside;
        let mut used = lock(&group.shares.0.used);
        used.common -= self.common;
        used.all -= all;
        if self.reserve > 0 {
            *lock(&group.own.reserve_used) -= self.reserve;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Urgency::*;
    use super::*;

    /// 60 in common, 20 reserved for each of two groups.
    fn shares() -> (Shares, [Group; 2]) {
        let rules = ShareRules {
            total: 100,
            group_reserve: 20,
            least_common: 20,
            client_limit: 40,
            client_first: 20,
            client_beside: 2,
        };
        let shares = Shares::new(rules);
        let groups = [shares.group(), shares.group()];
        (shares, groups)
    }

    fn client(group: &Group, number: u32) -> Client {
        group.client(ClientId::User { place: "s".to_owned(), user: number })
    }

    /// Takes as much as the client gets, one unit at a time.
    fn all_of(client: &Client, urgency: Urgency) -> (u64, Taken) {
        let mut taken = client.nothing();
        let count = std::iter::repeat_with(|| taken.try_add(1, urgency)).take_while(|added| *added).count();
        (count as u64, taken)
    }

    #[test]
    fn one_client_gets_its_share_and_no_more() {
        let (shares, [group, _]) = shares();
        let (ordinary, _first) = all_of(&client(&group, 1), Ordinary);
        let (more, _second) = all_of(&client(&group, 1), FirstOfGroup);
        assert_eq!((ordinary, more), (20, 20), "the rest of its share is for the first of its requests");
        assert!(!client(&group, 1).has_share(1) && client(&group, 2).has_share(40));
        assert_eq!(shares.used(), 40);
    }

    #[test]
    fn a_group_that_takes_all_leaves_others_a_reserve() {
        let (shares, [greedy, other]) = shares();
        let held: Vec<_> = (0..9).map(|number| all_of(&client(&greedy, number), FirstOfGroup)).collect();
        // The common part, the reserve, and the extra allowance of clients whose share permits it.
        assert_eq!(held.iter().map(|(count, _)| count).sum::<u64>(), 60 + 20 + 8 * 2);
        let victim = client(&other, 1);
        let (small, beside) = all_of(&victim, Ordinary);
        assert_eq!(small, 2, "small requests need not wait");
        assert!(!victim.nothing().try_add(3, FirstOfClient), "a long one gets no extra allowance");
        let first = victim.take(20).expect("the reserve of its group");
        assert!(victim.take(1).is_none());
        drop((first, beside));
        assert_eq!(all_of(&victim, FirstOfGroup).0, 22);
        drop(held);
        assert_eq!(shares.used(), 0, "everything is freed");
        assert_eq!(all_of(&victim, FirstOfGroup).0, 40);
    }

    #[test]
    fn many_groups_keep_something_in_common() {
        let (shares, _) = shares();
        let groups: Vec<_> = (0..10).map(|_| shares.group()).collect();
        assert_eq!(all_of(&client(&groups[0], 1), FirstOfClient).0, 20 + 2);
        assert!(client(&groups[1], 1).take(20).is_some(), "each has its reserve all the same");
    }

    #[test]
    fn clients_that_have_left_are_not_remembered() {
        let (_, [group, _]) = shares();
        for number in 0..1000 {
            drop(client(&group, number).take(1));
        }
        assert!(lock(&group.own.clients).len() <= 2);
    }
}
