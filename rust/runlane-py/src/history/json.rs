//! JSON of a record as Python values.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use runlane_core::history::{Cursor, Fault, decoded};

use super::corrupt;

/// The value of a JSON text that a record holds; it nests no deeper than the record's reader allows.
pub(super) fn value<'py, 't>(
    py: Python<'py>,
    text: &'t str,
    keys: &mut Texts<'t>,
) -> PyResult<Bound<'py, PyAny>> {
    Reader {
        py,
        text,
        cursor: Cursor::new(text),
        keys,
    }
    .value()
}

/// Short texts that come again and again, such as keys: each made once, as long as nothing takes its place.
#[derive(Default)]
pub(super) struct Texts<'t> {
    known: Vec<Option<(&'t str, Py<PyString>)>>,
}

/// How many texts are kept; a power of two.
const KEPT: usize = 64;
/// The longest of them.
const SHORT: usize = 32;

impl<'t> Texts<'t> {
    /// The text of what stands between the quotes of a JSON string.
    pub(super) fn text<'py>(&mut self, py: Python<'py>, raw: &'t str) -> Bound<'py, PyString> {
        if raw.len() > SHORT {
            return PyString::new(py, &decoded(raw));
        }
        if self.known.is_empty() {
            self.known.resize_with(KEPT, || None);
        }
        let mixed = raw.bytes().fold(raw.len(), |mixed, byte| {
            mixed.wrapping_mul(31).wrapping_add(usize::from(byte))
        });
        let Some(place) = self.known.get_mut(mixed % KEPT) else {
            return PyString::new(py, &decoded(raw));
        };
        match place {
            Some((known, text)) if *known == raw => text.bind(py).clone(),
            _ => {
                let made = PyString::new(py, &decoded(raw));
                *place = Some((raw, made.clone().unbind()));
                made
            }
        }
    }
}

struct Reader<'py, 't, 'k> {
    py: Python<'py>,
    text: &'t str,
    cursor: Cursor<'t>,
    keys: &'k mut Texts<'t>,
}

impl<'py> Reader<'py, '_, '_> {
    fn value(&mut self) -> PyResult<Bound<'py, PyAny>> {
        match self.cursor.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => Ok(self.string()?.into_any()),
            _ => self.scalar(),
        }
    }

    fn string(&mut self) -> PyResult<Bound<'py, PyString>> {
        let span = self.cursor.string().map_err(refused)?;
        Ok(PyString::new(self.py, &decoded(span.of(self.text))))
    }

    fn object(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.py);
        self.cursor
            .expect(b'{', "an object is missing")
            .map_err(refused)?;
        if self.cursor.closes(b'}') {
            return Ok(dict.into_any());
        }
        loop {
            let span = self.cursor.string().map_err(refused)?;
            let name = self.keys.text(self.py, span.of(self.text));
            self.cursor
                .expect(b':', "a colon is missing")
                .map_err(refused)?;
            dict.set_item(name, self.value()?)?;
            if !self.cursor.more(b'}').map_err(refused)? {
                return Ok(dict.into_any());
            }
        }
    }

    fn array(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let list = PyList::empty(self.py);
        self.cursor
            .expect(b'[', "an array is missing")
            .map_err(refused)?;
        if self.cursor.closes(b']') {
            return Ok(list.into_any());
        }
        loop {
            list.append(self.value()?)?;
            if !self.cursor.more(b']').map_err(refused)? {
                return Ok(list.into_any());
            }
        }
    }

    fn scalar(&mut self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let text = self.cursor.value().map_err(refused)?.of(self.text);
        Ok(match text {
            "null" => py.None().into_bound(py),
            "true" => PyBool::new(py, true).to_owned().into_any(),
            "false" => PyBool::new(py, false).to_owned().into_any(),
            number
                if number
                    .bytes()
                    .any(|byte| matches!(byte, b'.' | b'e' | b'E')) =>
            {
                PyFloat::new(py, number.parse()?).into_any()
            }
            number => match number.parse::<i64>() {
                Ok(small) => small.into_pyobject(py)?.into_any(),
                Err(_) => py.get_type::<PyInt>().call1((number,))?,
            },
        })
    }
}

fn refused(fault: Fault) -> PyErr {
    corrupt(fault.problem, fault.offset)
}
