//! What the HTTP thread asks of the daemon's executor: command lines, and how everything stands.

use std::pin::pin;
use std::rc::Rc;

use stripewise_control::daemon::caller::{Caller, Collected};
use stripewise_control::daemon::socket::frames::Colours;
use stripewise_control::daemon::turns::Turns;

use super::metrics;
use crate::carry_out::{From, carry_out};
use crate::commands::App;
use crate::failure::Exit;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use futures_util::future::{Either, select};

/// Something to do.
pub struct Order {
    /// What.
    pub what: What,
    /// Who asks, for the log.
    pub who: String,
    /// Who waits for it; may have left.
    pub answer: oneshot::Sender<Answer>,
}

/// What is to be done.
pub enum What {
    /// A command line, its input behind it.
    Command(Vec<String>, Vec<u8>),
    /// Figures for Prometheus.
    Metrics,
}

/// What came of it.
pub struct Answer {
    /// How it ended.
    pub exit: Exit,
    /// What it printed.
    pub collected: Collected,
}

/// Carries out orders until there are no more.
pub async fn carry_out_all(orders: &mut mpsc::Receiver<Order>, app: &App, turns: &Rc<Turns>) {
    let Ok(executor) = app.executor() else { return };
    while let Some(Order { what, who, mut answer }) = orders.next().await {
        if answer.is_canceled() {
            continue;
        }
        let (app, turns) = (app.clone(), turns.clone());
        let work = async move {
            let done = match what {
                What::Metrics => {
                    let collected =
                        Collected { output: metrics::text(&app).into_bytes(), messages: String::new() };
                    Answer { exit: Exit::Success, collected }
                }
                What::Command(words, input) => {
                    let caller = Rc::new(Caller::with_input(input));
                    let carried_out = pin!(command(&words, &who, &app, &turns, &caller));
                    match select(carried_out, answer.cancellation()).await {
                        Either::Left((done, _)) => done,
                        // Nobody waits any more: what only waits ends, a change is finished.
                        Either::Right(((), carried_out)) => {
                            caller.leave();
                            carried_out.await
                        }
                    }
                }
            };
            // Nobody may be waiting any more.
            let _ = answer.send(done);
        };
        drop(executor.context().spawn(work));
    }
}

async fn command(words: &[String], who: &str, app: &App, turns: &Turns, caller: &Rc<Caller>) -> Answer {
    let from = From { way: "http", who, folder: "/".as_ref() };
    let work = async {
        let exit = carry_out(words, from, Colours::default(), app, caller, turns).await;
        caller.end(exit.code());
        exit
    };
    let (exit, collected) = futures_util::join!(work, caller.collect());
    Answer { exit, collected }
}
