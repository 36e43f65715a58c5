//! Orders of the HTTP thread to the daemon's executor: requests on pools, metrics, and
//! subscriptions to events.

use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;

use axum::body::Bytes;
use futures_channel::{mpsc, oneshot};
use futures_util::future::{Either, select};
use futures_util::{SinkExt, StreamExt};
use stripewise_control::daemon::alerts::Channel;
use stripewise_control::daemon::caller::{Caller, Collected};
use stripewise_control::daemon::news::{Followed, PoolNews};
use stripewise_control::daemon::socket::frames::Colours;
use stripewise_control::daemon::turns::Turns;
use stripewise_control::pools::load::PoolRates;
use stripewise_control::pools::session::Session;
use stripewise_control::report::PoolReport;
use stripewise_control::request::Request;
use stripewise_control::response::Response;
use stripewise_pool::{RowRun, VolumeLoad};

use super::metrics;
use super::visitor::Visitor;
use crate::answer::exit_of;
use crate::commands::App;
use crate::execute::{From, execute};
use crate::failure::Result;
use crate::printer::Printer;

/// An order. Its caller may have left.
pub(super) enum Order {
    /// A request with its input.
    Request {
        /// The request.
        request: Box<Request>,
        /// True if the answer is a document, false if it is bytes of a volume.
        json: bool,
        /// The bytes that the request writes.
        input: Input,
        /// Receives the bytes that the request reads, as they come; `None`: they are in the answer.
        output: Option<mpsc::Sender<Vec<u8>>>,
        /// The caller.
        visitor: Visitor,
        /// Receives the outcome.
        answer: oneshot::Sender<Answer>,
    },
    /// Metrics for Prometheus.
    Metrics(oneshot::Sender<String>),
    /// The load of a pool over the last hour.
    History {
        /// Pool name.
        pool: String,
        /// Receives the intervals; none for a pool that is not served.
        answer: oneshot::Sender<Vec<PoolRates>>,
    },
    /// The rows of a pool's volumes.
    Rows {
        /// Pool name.
        pool: String,
        /// Receives the rows; `None` for a pool that is not served.
        answer: oneshot::Sender<Option<Vec<RowRun>>>,
    },
    /// Requests of clients to a volume that are in flight, and its clients.
    VolumeUse {
        /// Pool name.
        pool: String,
        /// Volume name.
        volume: String,
        /// Receives the use; `None` for a volume that is not open here.
        answer: oneshot::Sender<Option<VolumeUse>>,
    },
    /// Ways to all volumes, and channels of alerts.
    Service(oneshot::Sender<Service>),
    /// A subscription to the events of pools.
    Follow {
        /// The events wanted.
        followed: Followed,
        /// The caller, for the log.
        who: String,
        /// Receives the events, until the subscription ends.
        answer: oneshot::Sender<Result<mpsc::Receiver<PoolNews>>>,
    },
}

/// Bytes for a request.
pub(super) enum Input {
    /// All of them.
    Whole(Vec<u8>),
    /// Parts, as they come; an error if the client stopped in the middle.
    Parts(mpsc::Receiver<Part>),
}

/// A part of a request's body.
pub(super) type Part = std::result::Result<Bytes, Broken>;

/// The rest of a request's body does not come.
pub(super) struct Broken;

/// Use of a volume.
pub(super) struct VolumeUse {
    /// Its load since it was opened.
    pub load: VolumeLoad,
    /// Its NBD clients; `None` without an NBD server.
    pub nbd_clients: Option<Vec<String>>,
    /// Its vhost-user front ends; `None` without a server for them.
    pub vhost_clients: Option<Vec<String>>,
}

/// Ways to all volumes, and channels of alerts.
pub(super) struct Service {
    /// Listen addresses of the NBD server.
    pub nbd: Vec<String>,
    /// Folder of vhost-user sockets, if there is one.
    pub vhost_user: Option<PathBuf>,
    /// Channels of alerts.
    pub alerts: Vec<Channel>,
}

/// The outcome of a request.
pub(super) struct Answer {
    /// The request's result.
    pub result: Result<Response>,
    /// Bytes read from a volume, and messages for the user.
    pub collected: Collected,
}

/// Runs orders until the channel closes.
pub(super) async fn execute_all(orders: &mut mpsc::Receiver<Order>, app: &App, turns: &Rc<Turns>) {
    let Ok(executor) = app.executor() else { return };
    while let Some(order) = orders.next().await {
        match order {
            Order::Request { request, json, input, output, visitor, answer } if !answer.is_canceled() => {
                let (app, turns) = (app.clone(), turns.clone());
                let asked = Asked { request, json, output, visitor };
                let work = async move { carry_out_for(asked, input, &app, &turns, answer).await };
                drop(executor.context().spawn(work));
            }
            Order::Request { .. } => {}
            Order::Metrics(answer) => drop(answer.send(metrics::text(app))),
            Order::History { pool, answer } => drop(answer.send(app.history.of(&pool))),
            Order::Rows { pool, answer } => {
                let session = Session::served(app, &pool);
                drop(answer.send(session.map(|session| session.pool.row_runs())));
            }
            Order::VolumeUse { pool, volume, answer } => {
                let session = Session::served(app, &pool);
                let loads = session.map(|session| session.pool.volume_loads()).unwrap_or_default();
                let load = loads.into_iter().find(|load| load.volume == volume);
                let name = format!("{pool}/{volume}");
                let listeners = app.served.listeners().borrow();
                let nbd_clients = listeners.nbd.as_ref().map(|nbd| nbd.clients_of(&name));
                let vhost_clients = listeners.vhost.as_ref().map(|vhost| vhost.clients_of(&name));
                drop(answer.send(load.map(|load| VolumeUse { load, nbd_clients, vhost_clients })));
            }
            Order::Service(answer) => {
                let listeners = app.served.listeners().borrow();
                let (nbd, vhost_user) = (listeners.nbd_places.clone(), listeners.vhost_folder.clone());
                let alerts = app.alerts().map(|alerts| alerts.channels().to_vec()).unwrap_or_default();
                drop(answer.send(Service { nbd, vhost_user, alerts }));
            }
            Order::Follow { followed, who, answer } => {
                tracing::debug!(target: "command", way = "http", who, "follows {followed:?}");
                drop(answer.send(app.news.follow(&reports(app), followed)));
            }
        }
    }
}

/// A request with where its answer goes.
struct Asked {
    request: Box<Request>,
    json: bool,
    output: Option<mpsc::Sender<Vec<u8>>>,
    visitor: Visitor,
}

async fn carry_out_for(
    asked: Asked,
    input: Input,
    app: &App,
    turns: &Turns,
    mut answer: oneshot::Sender<Answer>,
) {
    let (caller, parts) = match input {
        Input::Whole(bytes) => (Caller::with_input(bytes), None),
        Input::Parts(parts) => (Caller::new(None), Some(parts)),
    };
    let caller = Rc::new(caller.of(asked.visitor.party()));
    let done = {
        let work = async {
            let collected = pin!(collected(asked, app, turns, &caller));
            match select(collected, pin!(feed(&caller, parts))).await {
                Either::Left((done, _)) => done,
                Either::Right(((), collected)) => collected.await,
            }
        };
        match select(pin!(work), answer.cancellation()).await {
            Either::Left((done, _)) => done,
            // Its caller has left: a request that only waits ends, a change is finished.
            Either::Right(((), work)) => {
                caller.leave();
                work.await
            }
        }
    };
    // The caller may have left.
    let _ = answer.send(done);
}

/// Gives a caller its input in parts, each when it is wanted.
async fn feed(caller: &Caller, parts: Option<mpsc::Receiver<Part>>) {
    let Some(mut parts) = parts else { return };
    while caller.until_input_wanted().await {
        let part = match parts.next().await {
            Some(Ok(part)) if part.is_empty() => continue,
            Some(Ok(part)) => part,
            Some(Err(Broken)) => return caller.leave(),
            None => Bytes::new(),
        };
        // It was wanted.
        let _ = caller.take_wanted_input(&part);
    }
}

async fn collected(asked: Asked, app: &App, turns: &Turns, caller: &Rc<Caller>) -> Answer {
    let Asked { request, json, output, visitor } = asked;
    let from = From { way: "http", who: &visitor.name };
    let printer = Printer::to_caller(json, json, Colours::default(), caller.clone());
    let app = app.for_caller(printer, caller.clone(), PathBuf::from("/"), visitor.role);
    let work = async {
        let result = execute(&request, from, &app, caller, turns).await;
        caller.end(exit_of(&result).code());
        result
    };
    let printed = async {
        let Some(mut output) = output else { return caller.collect().await };
        let relayed = caller.relay(async |bytes| {
            if output.send(bytes).await.is_err() {
                caller.leave();
            }
        });
        Collected { output: Vec::new(), messages: relayed.await }
    };
    let (result, collected) = futures_util::join!(work, printed);
    Answer { result, collected }
}

/// Reports of all pools served here.
fn reports(app: &App) -> Vec<PoolReport> {
    Session::all_served(app).iter().map(|session| session.report()).collect()
}
