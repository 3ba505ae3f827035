//! Calls of services that other nodes offer: a client for each service while calls come, and for each call an answer or a reason.

use holdall_transport::{ServiceClient, ServiceDescription, ServiceReply, Transport};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// How long a service may take to be found and to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long a client is kept for the next call.
const KEPT: Duration = Duration::from_secs(30);

/// Clients at once, and calls of one that wait or are unanswered.
const CLIENTS_MAX: usize = 256;
const CALLS_MAX: usize = 256;

/// Identifies a call for the receiver of its answer.
pub(super) type Ticket = u64;

/// An answer, or why there is none.
pub(super) type Answer = Result<Vec<u8>, String>;

struct Waiting {
    ticket: Ticket,
    payload: Vec<u8>,
    until: Duration,
}

struct Called {
    client: Box<dyn ServiceClient>,
    /// Not sent yet.
    waiting: VecDeque<Waiting>,
    /// Sent, by number, until then.
    sent: BTreeMap<u64, (Ticket, Duration)>,
    used: Duration,
}

/// All calls. Stepped by the thread that has the transports.
#[derive(Default)]
pub(super) struct Calls {
    called: BTreeMap<(usize, String), Called>,
    last: Ticket,
}

impl Calls {
    /// Begins a call over the transport of this number; its answer comes from [`Calls::step`]. The reason when that cannot be.
    pub(super) fn begin(
        &mut self,
        transports: &mut [Box<dyn Transport>],
        number: usize,
        service: &ServiceDescription,
        payload: Vec<u8>,
        now: Duration,
    ) -> Result<Ticket, String> {
        let key = (number, service.name.clone());
        if !self.called.contains_key(&key) {
            if self.called.len() >= CLIENTS_MAX {
                return Err(format!("viewers call {CLIENTS_MAX} services already"));
            }
            let transport = transports.get_mut(number).ok_or("its transport has ended")?;
            // Polled in each round anyway.
            let client = transport.client(service, Arc::new(|| {}));
            self.called.insert(
                key.clone(),
                Called {
                    client: client.map_err(|error| error.to_string())?,
                    waiting: VecDeque::new(),
                    sent: BTreeMap::new(),
                    used: now,
                },
            );
        }
        let called = self.called.get_mut(&key).ok_or("the service is gone")?;
        if called.waiting.len() + called.sent.len() >= CALLS_MAX {
            return Err(format!(
                "{CALLS_MAX} calls of {} are unanswered already",
                service.name
            ));
        }
        self.last += 1;
        called.used = now;
        called.waiting.push_back(Waiting {
            ticket: self.last,
            payload,
            until: now + ANSWER_WITHIN,
        });
        Ok(self.last)
    }

    /// Sends requests that can be sent, and appends those that have been answered or have taken too long.
    pub(super) fn step(&mut self, now: Duration, answers: &mut Vec<(Ticket, Answer)>) {
        let mut replies = Vec::new();
        for ((_, name), called) in &mut self.called {
            while !called.waiting.is_empty() && called.client.is_ready() {
                let Some(call) = called.waiting.pop_front() else {
                    break;
                };
                match called.client.send(&call.payload) {
                    Ok(number) => drop(called.sent.insert(number, (call.ticket, call.until))),
                    Err(error) => answers.push((call.ticket, Err(error.to_string()))),
                }
            }
            called.client.poll(&mut replies);
            for ServiceReply { number, payload } in replies.drain(..) {
                if let Some((ticket, _)) = called.sent.remove(&number) {
                    answers.push((ticket, payload));
                }
            }
            let late = |what: &str| Err(format!("{name} {what} within {} s", ANSWER_WITHIN.as_secs()));
            called.waiting.retain(|call| {
                if call.until <= now {
                    answers.push((call.ticket, late("was not found")));
                }
                call.until > now
            });
            called.sent.retain(|_, (ticket, until)| {
                if *until <= now {
                    answers.push((*ticket, late("did not answer")));
                }
                *until > now
            });
        }
        self.called.retain(|_, called| {
            let is_busy = !called.waiting.is_empty() || !called.sent.is_empty();
            is_busy || now.saturating_sub(called.used) < KEPT
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_transport::TransportError;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Fake {
        is_ready: bool,
        sent: Vec<Vec<u8>>,
        replies: Vec<ServiceReply>,
    }

    struct FakeClient(Arc<Mutex<Fake>>);

    impl ServiceClient for FakeClient {
        fn is_ready(&mut self) -> bool {
            self.0.lock().unwrap().is_ready
        }

        fn send(&mut self, payload: &[u8]) -> Result<u64, TransportError> {
            let mut fake = self.0.lock().unwrap();
            fake.sent.push(payload.to_vec());
            Ok(fake.sent.len() as u64)
        }

        fn poll(&mut self, replies: &mut Vec<ServiceReply>) {
            replies.append(&mut self.0.lock().unwrap().replies);
        }
    }

    fn calls(fake: &Arc<Mutex<Fake>>) -> Calls {
        let mut calls = Calls::default();
        let called = Called {
            client: Box::new(FakeClient(Arc::clone(fake))),
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            used: Duration::ZERO,
        };
        calls.called.insert((0, "/add".to_owned()), called);
        calls
    }

    fn step(calls: &mut Calls, now: u64) -> Vec<(Ticket, Answer)> {
        let mut answers = Vec::new();
        calls.step(Duration::from_secs(now), &mut answers);
        answers
    }

    #[test]
    fn each_call_gets_one_answer_or_a_reason() {
        let fake = Arc::new(Mutex::new(Fake::default()));
        let mut calls = calls(&fake);
        let service = ServiceDescription {
            name: "/add".to_owned(),
            ..ServiceDescription::default()
        };
        let begin =
            |calls: &mut Calls, now| calls.begin(&mut [], 0, &service, vec![1], Duration::from_secs(now));
        let first = begin(&mut calls, 0).unwrap();
        assert_eq!(step(&mut calls, 1), []);
        assert_eq!(
            step(&mut calls, 10),
            [(first, Err("/add was not found within 10 s".to_owned()))]
        );
        fake.lock().unwrap().is_ready = true;
        let (second, third) = (begin(&mut calls, 11).unwrap(), begin(&mut calls, 11).unwrap());
        assert_eq!(step(&mut calls, 11), []);
        fake.lock().unwrap().replies = vec![ServiceReply {
            number: 2,
            payload: Ok(vec![7]),
        }];
        assert_eq!(step(&mut calls, 12), [(third, Ok(vec![7]))]);
        assert_eq!(
            step(&mut calls, 21),
            [(second, Err("/add did not answer within 10 s".to_owned()))]
        );
        step(&mut calls, 100);
        assert!(calls.called.is_empty(), "the client is gone");
        assert_eq!(begin(&mut calls, 100), Err("its transport has ended".to_owned()));
    }

    #[test]
    fn unanswered_calls_are_bounded() {
        let fake = Arc::new(Mutex::new(Fake::default()));
        let mut calls = calls(&fake);
        let service = ServiceDescription {
            name: "/add".to_owned(),
            ..ServiceDescription::default()
        };
        for _ in 0..CALLS_MAX {
            calls.begin(&mut [], 0, &service, vec![], Duration::ZERO).unwrap();
        }
        assert!(calls.begin(&mut [], 0, &service, vec![], Duration::ZERO).is_err());
    }
}
