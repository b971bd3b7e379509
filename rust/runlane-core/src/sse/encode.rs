//! Fields to the bytes of one event, with no way to smuggle in a second one.

use memchr::{memchr2, memchr3};

/// Why fields have no event stream form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The event name holds CR, LF or NUL.
    Name,
    /// The id holds CR, LF or NUL.
    Id,
    /// There is nothing to write.
    Empty,
}

/// The fields of one event, in the order they are written: comment, event, id, retry, data.
///
/// A frame without data dispatches no event at the reader: it is a heartbeat, sets the id or the retry time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'f> {
    /// Text that readers drop, one comment line for each of its lines.
    pub comment: Option<&'f [u8]>,
    /// The event name; None and the empty name mean `message` and are not written.
    pub name: Option<&'f [u8]>,
    /// The id; an empty one resets the reader's last event id.
    pub id: Option<&'f [u8]>,
    /// The reconnection time in milliseconds.
    pub retry_ms: Option<u64>,
    /// The data; LF, CR and CRLF end its lines, and a reader sees LF for each.
    pub data: Option<&'f [u8]>,
}

impl Frame<'_> {
    /// Refuses fields that would write something else than they say.
    ///
    /// # Errors
    /// An event name or id with CR, LF or NUL, or a frame with nothing in it.
    #[inline]
    pub fn check(&self) -> Result<(), Refusal> {
        if self.name.is_some_and(breaks_a_line) {
            return Err(Refusal::Name);
        }
        if self.id.is_some_and(breaks_a_line) {
            return Err(Refusal::Id);
        }
        let empty = self.comment.is_none()
            && self.name.is_none()
            && self.id.is_none()
            && self.retry_ms.is_none()
            && self.data.is_none();
        if empty { Err(Refusal::Empty) } else { Ok(()) }
    }

    /// Measures the frame, so that it can be written into a buffer of the right size.
    #[inline]
    pub fn measure(&self) -> Measured<'_> {
        if let Some(data) = self.plain() {
            let len = data.len().saturating_add(8);
            return Measured {
                frame: self,
                plain: Some(data),
                len,
            };
        }
        let mut len = 0_usize;
        self.pieces(|piece| len = len.saturating_add(piece.len()));
        Measured {
            frame: self,
            plain: None,
            len,
        }
    }

    /// The data of the plainest frame: one line of data and nothing else.
    #[inline]
    fn plain(&self) -> Option<&[u8]> {
        let bare = self.comment.is_none()
            && self.name.is_none()
            && self.id.is_none()
            && self.retry_ms.is_none();
        self.data
            .filter(|data| bare && memchr2(b'\n', b'\r', data).is_none())
    }

    /// Hands every piece of the frame to `write`, in order.
    #[inline]
    fn pieces(&self, mut write: impl FnMut(&[u8])) {
        if let Some(comment) = self.comment {
            each_line(comment, b": ", &mut write);
        }
        if let Some(name) = self.name.filter(|name| !name.is_empty()) {
            one_line(name, b"event: ", &mut write);
        }
        if let Some(id) = self.id {
            one_line(id, b"id: ", &mut write);
        }
        if let Some(retry_ms) = self.retry_ms {
            one_line(Digits::of(retry_ms).as_bytes(), b"retry: ", &mut write);
        }
        if let Some(data) = self.data {
            each_line(data, b"data: ", &mut write);
        }
        write(b"\n");
    }
}

/// A frame whose size is known.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'f> {
    frame: &'f Frame<'f>,
    /// Set for the plainest frame, whose data need not be searched for line ends again.
    plain: Option<&'f [u8]>,
    len: usize,
}

impl Measured<'_> {
    /// How many bytes the frame is, blank line included; never 0.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame has at least its blank line"
    )]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes the frame into a buffer of [`Measured::len`] bytes; what does not fit is left out.
    #[inline]
    pub fn write(&self, buffer: &mut [u8]) {
        let mut rest = buffer;
        let mut put = |piece: &[u8]| {
            if let Some((slot, after)) = std::mem::take(&mut rest).split_at_mut_checked(piece.len())
            {
                slot.copy_from_slice(piece);
                rest = after;
            }
        };
        match self.plain {
            Some(data) => {
                put(b"data: ");
                put(data);
                put(b"\n\n");
            }
            None => self.frame.pieces(put),
        }
    }
}

fn breaks_a_line(text: &[u8]) -> bool {
    memchr3(b'\n', b'\r', 0, text).is_some()
}

#[inline]
fn one_line(value: &[u8], prefix: &[u8], write: &mut impl FnMut(&[u8])) {
    write(prefix);
    write(value);
    write(b"\n");
}

/// Writes each line of `text` behind `prefix`; text without a terminator is one line, the empty text included.
#[inline]
fn each_line(text: &[u8], prefix: &[u8], write: &mut impl FnMut(&[u8])) {
    let mut rest = text;
    while let Some((line, after)) =
        memchr2(b'\n', b'\r', rest).and_then(|at| rest.split_at_checked(at))
    {
        one_line(line, prefix, write);
        rest = match after {
            [b'\r', b'\n', next @ ..] | [_, next @ ..] => next,
            [] => &[],
        };
    }
    one_line(rest, prefix, write);
}

/// The decimal digits of a number, without the formatting machinery.
struct Digits {
    buffer: [u8; 20],
    start: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let mut digits = Self {
            buffer: [b'0'; 20],
            start: 20,
        };
        for slot in digits.buffer.iter_mut().rev() {
            *slot = b'0'.saturating_add(u8::try_from(number % 10).unwrap_or_default());
            digits.start = digits.start.saturating_sub(1);
            number /= 10;
            if number == 0 {
                break;
            }
        }
        digits
    }

    fn as_bytes(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(frame: Frame<'_>) -> String {
        frame.check().unwrap();
        let measured = frame.measure();
        let mut out = vec![0; measured.len()];
        measured.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_field_has_its_line() {
        let frame = Frame {
            comment: Some(b"c\nd"),
            name: Some(b"delta"),
            id: Some(b"7"),
            retry_ms: Some(1500),
            data: Some(b"a\r\nb\rc\n"),
        };
        assert_eq!(
            encode(frame),
            ": c\n: d\nevent: delta\nid: 7\nretry: 1500\ndata: a\ndata: b\ndata: c\ndata: \n\n"
        );
    }

    #[test]
    fn the_plainest_frame_is_one_line() {
        for data in [&b""[..], b"x", b" x"] {
            let frame = Frame {
                data: Some(data),
                ..Frame::default()
            };
            assert_eq!(frame.plain(), Some(data));
            assert_eq!(
                encode(frame).as_bytes(),
                [b"data: ", data, b"\n\n"].concat()
            );
        }
        let two = Frame {
            data: Some(b"x\r"),
            ..Frame::default()
        };
        assert_eq!(encode(two), "data: x\ndata: \n\n");
    }

    #[test]
    fn numbers_are_whole() {
        for number in [0, 9, 10, 1500, u64::MAX] {
            assert_eq!(Digits::of(number).as_bytes(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_second_event_cannot_be_smuggled_in() {
        for bad in [&b"a\n"[..], b"\ra", b"a\0"] {
            assert_eq!(
                Frame {
                    name: Some(bad),
                    ..Frame::default()
                }
                .check(),
                Err(Refusal::Name)
            );
            assert_eq!(
                Frame {
                    id: Some(bad),
                    ..Frame::default()
                }
                .check(),
                Err(Refusal::Id)
            );
        }
        assert_eq!(Frame::default().check(), Err(Refusal::Empty));
    }
}
