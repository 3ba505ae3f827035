//! A list that stores its first element inline: for what nearly always has one element and is read for each message.

use std::ops::{Index, IndexMut};

/// Grows only; elements are found by number.
#[derive(Debug)]
pub(super) struct FirstInline<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Default for FirstInline<T> {
    fn default() -> Self {
        Self {
            first: None,
            more: Vec::new(),
        }
    }
}

impl<T> FirstInline<T> {
    #[cfg(test)]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    pub fn push(&mut self, element: T) {
        match &self.first {
            None => self.first = Some(element),
            Some(_) => self.more.push(element),
        }
    }

    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        match number.checked_sub(1) {
            None => self.first.as_ref(),
            Some(further) => self.more.get(further),
        }
    }

    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        match number.checked_sub(1) {
            None => self.first.as_mut(),
            Some(further) => self.more.get_mut(further),
        }
    }
}

impl<T> Index<usize> for FirstInline<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: usize) -> &T {
        self.get(number).expect("the number came from this list")
    }
}

impl<T> IndexMut<usize> for FirstInline<T> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        self.get_mut(number).expect("the number came from this list")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_the_number_they_got() {
        let mut list = FirstInline::default();
        assert_eq!((list.len(), list.get(0)), (0, None));
        for number in 0..5 {
            assert_eq!(list.len(), number);
            list.push(number * 10);
        }
        list[3] += 1;
        assert_eq!(
            (0..5).map(|number| list[number]).collect::<Vec<_>>(),
            [0, 10, 20, 31, 40]
        );
        assert_eq!(list.get(5), None);
        assert_eq!(list.get_mut(6), None);
    }
}
