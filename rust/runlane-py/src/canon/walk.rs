//! The walk through a Python value, in the order of its text. It does not recurse.

use std::collections::BTreeSet;

use pyo3::ffi;
use pyo3::prelude::*;
use runlane_core::canon::{Drain, Form, Pointer, Problem, Stop, Writer};

use super::grip::{Grip, Pair};
use super::scalar::{self, Kind};
use super::shape::{Place, Shapes};

/// A depth from which on cycles are looked for, at each power of two.
const FIRST_CYCLE_DEPTH: usize = 8;

/// A container of which a part has been written.
enum Frame<G> {
    List {
        list: G,
        next: usize,
        length: usize,
    },
    Tuple {
        tuple: G,
        next: usize,
        length: usize,
    },
    Dict {
        dict: G,
        next: usize,
        members: Members,
    },
}

/// Where the members of an open dict are.
#[derive(Clone, Copy)]
struct Members {
    /// Where they start, as the dict has them.
    pairs: usize,
    /// Where they start in order: among the places, or among the known shapes.
    places: usize,
    length: usize,
    is_known: bool,
}

impl<G: Grip> Frame<G> {
    fn pointer(&self) -> *mut ffi::PyObject {
        match self {
            Self::List {
                list: container, ..
            }
            | Self::Tuple {
                tuple: container, ..
            }
            | Self::Dict {
                dict: container, ..
            } => container.pointer(),
        }
    }
}

/// See the module.
pub(super) struct Walker<'py, G: Grip, D> {
    py: Python<'py>,
    writer: Writer<D>,
    frames: Vec<Frame<G>>,
    /// The members of the open dicts, each dict's behind those of the one around it.
    pairs: Vec<Pair<G>>,
    /// Their keys in order, where that had to be found out.
    places: Vec<Place>,
    shapes: Shapes,
    /// The containers that are open, where that is looked at exactly.
    open: BTreeSet<usize>,
    culprit: Option<String>,
    failure: Option<PyErr>,
}

impl<'py, G: Grip, D: Drain> Walker<'py, G, D> {
    pub(super) fn new(py: Python<'py>, writer: Writer<D>) -> Self {
        Self {
            py,
            writer,
            frames: Vec::with_capacity(8),
            pairs: Vec::with_capacity(16),
            places: Vec::with_capacity(16),
            shapes: Shapes::default(),
            open: BTreeSet::new(),
            culprit: None,
            failure: None,
        }
    }

    /// Writes the whole value.
    pub(super) fn walk(&mut self, root: &Bound<'py, PyAny>) -> Result<(), Stop> {
        self.writer.enter(0, 1)?;
        let root = G::hold(root);
        if !scalar::write(self.py, &mut self.writer, &mut self.failure, root.pointer())? {
            self.open(root)?;
            while self.step()? {}
        }
        Ok(())
    }

    pub(super) fn into_writer(self) -> Writer<D> {
        self.writer
    }

    /// Why the walk ended.
    pub(super) fn problem(&self) -> Problem {
        self.writer.problem().unwrap_or(Problem::Changed)
    }

    /// What Python raised, if that is what ended the walk.
    pub(super) const fn take_failure(&mut self) -> Option<PyErr> {
        self.failure.take()
    }

    /// The name of the type that was refused.
    pub(super) const fn take_culprit(&mut self) -> Option<String> {
        self.culprit.take()
    }

    /// The path to the value at hand; only for a walk that owns what it holds.
    pub(super) fn path(&self) -> String {
        let mut pointer = Pointer::default();
        for frame in &self.frames {
            match frame {
                Frame::List { next, .. } | Frame::Tuple { next, .. } => {
                    if let Some(index) = next.checked_sub(1) {
                        pointer.index(index);
                    }
                }
                Frame::Dict { next, members, .. } => {
                    if let Some(next) = next.checked_sub(1)
                        && let Some(place) = self.places.get(members.places + next)
                    {
                        pointer.key(place.text.get());
                    }
                }
            }
        }
        pointer.finish()
    }

    /// Goes on with the innermost container up to its end or the next container in it; false at the end of all.
    fn step(&mut self) -> Result<bool, Stop> {
        let depth = self.frames.len();
        let (py, writer, failure) = (self.py, &mut self.writer, &mut self.failure);
        let Some(frame) = self.frames.last_mut() else {
            return Ok(false);
        };
        let mut container = None;
        match frame {
            Frame::List { list, next, length } => {
                while *next < *length {
                    writer.part(*next == 0)?;
                    let Some(item) = list.list_item(py, *next) else {
                        break;
                    };
                    *next += 1;
                    enter_child::<G, D>(writer, depth)?;
                    if !scalar::write(py, writer, failure, item.pointer())? {
                        container = Some(item);
                        break;
                    }
                }
            }
            Frame::Tuple {
                tuple,
                next,
                length,
            } => {
                while *next < *length {
                    writer.part(*next == 0)?;
                    let Some(item) = tuple.tuple_item(py, *next) else {
                        break;
                    };
                    *next += 1;
                    enter_child::<G, D>(writer, depth)?;
                    if !scalar::write(py, writer, failure, item.pointer())? {
                        container = Some(item);
                        break;
                    }
                }
            }
            Frame::Dict { next, members, .. } => {
                let Members {
                    pairs,
                    places,
                    length,
                    is_known,
                } = *members;
                let order = if is_known {
                    self.shapes.order()
                } else {
                    &self.places
                };
                let order = order.get(places..places + length).unwrap_or_default();
                while let Some(place) = order.get(*next) {
                    let is_first = *next == 0;
                    *next += 1;
                    let Some(pair) = self.pairs.get_mut(pairs + place.index) else {
                        break;
                    };
                    enter_child::<G, D>(writer, depth)?;
                    if is_known {
                        writer.rendered(place.text.bytes(), is_first)?;
                    } else {
                        writer.key(place.text.get(), is_first)?;
                    }
                    let Some(value) = &pair.value else { break };
                    if !scalar::write(py, writer, failure, value.pointer())? {
                        container = pair.value.take();
                        break;
                    }
                }
            }
        }
        match container {
            Some(container) => self.open(container)?,
            None => self.close()?,
        }
        Ok(true)
    }

    /// Starts a container, which is the next value.
    fn open(&mut self, container: G) -> Result<(), Stop> {
        let object = container.pointer();
        let kind = scalar::kind(object, self.writer.form());
        let is_container = matches!(kind, Kind::Dict | Kind::List | Kind::Tuple);
        if is_container && self.is_open(object) {
            return Err(self.writer.refuse(Problem::Cycle));
        }
        match kind {
            Kind::Dict => self.open_dict(container),
            Kind::Tuple => {
                self.writer.open_array()?;
                let length = container.tuple_length(self.py);
                self.frames.push(Frame::Tuple {
                    tuple: container,
                    next: 0,
                    length,
                });
                self.enter_children(length)
            }
            Kind::List => {
                self.writer.open_array()?;
                let length = container.list_length(self.py);
                self.frames.push(Frame::List {
                    list: container,
                    next: 0,
                    length,
                });
                self.enter_children(length)
            }
            // A value without others has been written before it comes here.
            Kind::Null
            | Kind::Boolean
            | Kind::Integer
            | Kind::Double
            | Kind::Text
            | Kind::Other => {
                self.culprit = scalar::type_name(self.py, object);
                Err(self.writer.refuse(Problem::ValueType))
            }
        }
    }

    fn open_dict(&mut self, dict: G) -> Result<(), Stop> {
        self.writer.open_object()?;
        let (pairs, places) = (self.pairs.len(), self.places.len());
        dict.members(self.py, |pair| self.pairs.push(pair));
        let length = self.pairs.len() - pairs;
        let members = Members {
            pairs,
            places,
            length,
            is_known: false,
        };
        self.frames.push(Frame::Dict {
            dict,
            next: 0,
            members,
        });
        self.enter_children(length)?;
        let known = if G::IS_BORROWED {
            self.shapes.find(keys(&self.pairs, pairs))
        } else {
            None
        };
        if let Some(places) = known {
            if let Some(Frame::Dict { members, .. }) = self.frames.last_mut() {
                *members = Members {
                    places,
                    is_known: true,
                    ..*members
                };
            }
            return Ok(());
        }
        self.arrange(members)?;
        if G::IS_BORROWED {
            let order = self.places.get(places..).unwrap_or_default();
            self.shapes.remember(keys(&self.pairs, pairs), order);
        }
        Ok(())
    }

    /// Checks the keys of the innermost dict and puts them in order.
    fn arrange(&mut self, members: Members) -> Result<(), Stop> {
        let form = self.writer.form();
        let mut is_sorted = true;
        for (index, pair) in self.pairs.iter().skip(members.pairs).enumerate() {
            if !scalar::is_key(pair.key, form) {
                self.culprit = scalar::type_name(self.py, pair.key);
                return Err(self.writer.refuse(Problem::KeyType));
            }
            let Some(text) = scalar::utf8(pair.key) else {
                let problem = Problem::LoneSurrogateInKey;
                return Err(scalar::no_utf8(
                    self.py,
                    &mut self.writer,
                    &mut self.failure,
                    problem,
                ));
            };
            let place = Place::new(index, text);
            if index > 0 && is_sorted {
                is_sorted = self
                    .places
                    .last()
                    .is_some_and(|last| last.compare(&place).is_lt());
            }
            self.places.push(place);
        }
        if is_sorted || form == Form::Lossless {
            return Ok(());
        }
        let places = self.places.get_mut(members.places..).unwrap_or_default();
        places.sort_unstable_by(Place::compare);
        // Keys that are no plain `str` may be equal as text.
        let is_twin = |pair: &[Place]| matches!(pair, [a, b] if a.compare(b).is_eq());
        if places.windows(2).any(is_twin) {
            return Err(self.writer.refuse(Problem::DuplicateKey));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Stop> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        if !G::IS_BORROWED {
            self.open.remove(&frame.pointer().addr());
        }
        match frame {
            Frame::List { .. } | Frame::Tuple { .. } => self.writer.close_array(),
            Frame::Dict { members, .. } => {
                self.pairs.truncate(members.pairs);
                if !members.is_known {
                    self.places.truncate(members.places);
                }
                self.writer.close_object()
            }
        }
    }

    /// Counts what a container holds, all at one go where it cannot change.
    fn enter_children(&mut self, count: usize) -> Result<(), Stop> {
        if G::IS_BORROWED && count > 0 {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            return self.writer.enter(self.frames.len(), count);
        }
        Ok(())
    }

    /// Whether a container is inside itself: looked for at some depths, which ends any cycle, or always.
    fn is_open(&mut self, object: *mut ffi::PyObject) -> bool {
        if !G::IS_BORROWED {
            return !self.open.insert(object.addr());
        }
        let depth = self.frames.len();
        let is_due = depth >= FIRST_CYCLE_DEPTH && depth.is_power_of_two();
        is_due && self.frames.iter().any(|frame| frame.pointer() == object)
    }
}

/// Counts one value of a container that may change, before it is written.
#[inline]
fn enter_child<G: Grip, D: Drain>(writer: &mut Writer<D>, depth: usize) -> Result<(), Stop> {
    if G::IS_BORROWED {
        Ok(())
    } else {
        writer.enter(depth, 1)
    }
}

/// The keys of the members from a place on.
#[inline]
fn keys<G: Grip>(
    pairs: &[Pair<G>],
    from: usize,
) -> impl ExactSizeIterator<Item = *mut ffi::PyObject> + Clone {
    pairs
        .get(from..)
        .unwrap_or_default()
        .iter()
        .map(|pair| pair.key)
}
