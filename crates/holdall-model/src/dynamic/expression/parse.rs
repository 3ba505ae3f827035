//! Parses the tokens of an expression into a tree.

use super::{
    DEPTH_MAX, ExpressionError,
    lexer::{Token, tokens, tokens_with_dates},
};

/// A part of an expression and its position.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub at: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Or(Box<Parsed>, Box<Parsed>),
    And(Box<Parsed>, Box<Parsed>),
    Not(Box<Parsed>),
    Negative(Box<Parsed>),
    /// A comparison or a calculation.
    Binary(&'static str, Box<Parsed>, Box<Parsed>),
    Call(String, Box<Parsed>),
    Path(Vec<(usize, PathStep)>),
    Integer(i128),
    Float(f64),
    Text(String),
    Bool(bool),
    /// A point in time in nanoseconds; only where dates are read.
    Time(i64),
}

/// A step of a path as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PathStep {
    Field(String),
    Item(i64),
    All,
}

const COMPARISONS: [&str; 8] = ["==", "!=", "<=", ">=", "<", ">", "=~", "!~"];

/// Reads a whole expression.
pub(super) fn parse(text: &str) -> Result<Parsed, ExpressionError> {
    whole(tokens(text)?)
}

/// As [`parse`], with dates.
pub(super) fn parse_with_dates(text: &str) -> Result<Parsed, ExpressionError> {
    whole(tokens_with_dates(text)?)
}

fn whole(tokens: Vec<(usize, Token)>) -> Result<Parsed, ExpressionError> {
    let mut parser = Parser {
        tokens,
        next: 0,
        depth: 0,
    };
    let parsed = parser.either()?;
    match parser.peek() {
        (_, Token::End) => Ok(parsed),
        (at, token) => Err(ExpressionError::new(
            *at,
            format!("expected the end or an operator, found {token}"),
        )),
    }
}

/// Reads the path of a field, such as `transforms[*].header.frame_id`.
pub(super) fn parse_path(text: &str) -> Result<Vec<(usize, PathStep)>, ExpressionError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
        depth: 0,
    };
    let path = match parser.take() {
        (at, Token::Word(first)) => parser.path(at, first)?,
        (at, token) => {
            let reason = format!("expected the name of a field, found {token}");
            return Err(ExpressionError::new(at, reason));
        }
    };
    match (parser.peek(), path) {
        ((_, Token::End), Kind::Path(steps)) => Ok(steps),
        ((at, token), _) => Err(ExpressionError::new(
            *at,
            format!("expected the end of the path, found {token}"),
        )),
    }
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &(usize, Token) {
        // The end is never taken.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> (usize, Token) {
        let token = self.peek().clone();
        if token.1 != Token::End {
            self.next += 1;
        }
        token
    }

    /// Takes one of these operators or words.
    fn accept(&mut self, wanted: &[&'static str]) -> Option<(usize, &'static str)> {
        let (at, token) = self.peek();
        let found = match token {
            Token::Sign(sign) => wanted.iter().find(|wanted| *wanted == sign),
            Token::Word(word) => wanted.iter().find(|wanted| *wanted == word),
            _ => None,
        }?;
        let found = (*at, *found);
        self.next += 1;
        Some(found)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ExpressionError> {
        match self.accept(&[sign]) {
            Some(_) => Ok(()),
            None => {
                let (at, token) = self.peek();
                Err(ExpressionError::new(
                    *at,
                    format!("expected {sign}, found {token}"),
                ))
            }
        }
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, ExpressionError>,
    ) -> Result<T, ExpressionError> {
        if self.depth == DEPTH_MAX {
            let reason = format!("it is nested deeper than {DEPTH_MAX} levels");
            return Err(ExpressionError::new(self.peek().0, reason));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Operands with operators between, from the left. The tree is as deep as there are operators.
    fn row(
        &mut self,
        signs: &[&'static str],
        mut operand: impl FnMut(&mut Self) -> Result<Parsed, ExpressionError>,
        join: impl Fn(&'static str, Box<Parsed>, Box<Parsed>) -> Kind,
    ) -> Result<Parsed, ExpressionError> {
        let mut left = operand(self)?;
        let mut count = 0;
        while let Some((at, sign)) = self.accept(signs) {
            count += 1;
            if count > DEPTH_MAX {
                let reason = format!("more than {DEPTH_MAX} operators in a row; use parentheses");
                return Err(ExpressionError::new(at, reason));
            }
            let right = operand(self)?;
            let kind = join(sign, Box::new(left), Box::new(right));
            left = Parsed { at, kind };
        }
        Ok(left)
    }

    fn either(&mut self) -> Result<Parsed, ExpressionError> {
        self.deeper(|parser| parser.row(&["||", "or"], Self::both, |_, left, right| Kind::Or(left, right)))
    }

    fn both(&mut self) -> Result<Parsed, ExpressionError> {
        self.row(&["&&", "and"], Self::not, |_, left, right| Kind::And(left, right))
    }

    fn not(&mut self) -> Result<Parsed, ExpressionError> {
        match self.accept(&["!", "not"]) {
            Some((at, _)) => {
                let inner = self.deeper(Self::not)?;
                Ok(Parsed {
                    at,
                    kind: Kind::Not(Box::new(inner)),
                })
            }
            None => self.comparison(),
        }
    }

    fn comparison(&mut self) -> Result<Parsed, ExpressionError> {
        let left = self.sum()?;
        let Some((at, sign)) = self.accept(&COMPARISONS) else {
            return Ok(left);
        };
        let right = self.sum()?;
        Ok(Parsed {
            at,
            kind: Kind::Binary(sign, Box::new(left), Box::new(right)),
        })
    }

    fn sum(&mut self) -> Result<Parsed, ExpressionError> {
        self.row(&["+", "-"], Self::product, Kind::Binary)
    }

    fn product(&mut self) -> Result<Parsed, ExpressionError> {
        self.row(&["*", "/", "%"], Self::signed, Kind::Binary)
    }

    fn signed(&mut self) -> Result<Parsed, ExpressionError> {
        match self.accept(&["-"]) {
            Some((at, _)) => {
                let inner = self.deeper(Self::signed)?;
                Ok(Parsed {
                    at,
                    kind: Kind::Negative(Box::new(inner)),
                })
            }
            None => self.primary(),
        }
    }

    fn primary(&mut self) -> Result<Parsed, ExpressionError> {
        let (at, token) = self.take();
        let kind = match token {
            Token::Integer(value) => Kind::Integer(value),
            Token::Float(value) => Kind::Float(value),
            Token::Text(text) => Kind::Text(text),
            Token::Time(nanos) => Kind::Time(nanos),
            Token::Word(word) if word == "true" || word == "false" => Kind::Bool(word == "true"),
            Token::Word(word) if self.peek().1 == Token::Sign("(") => {
                self.expect("(")?;
                let inner = self.either()?;
                self.expect(")")?;
                Kind::Call(word, Box::new(inner))
            }
            Token::Word(word) => self.path(at, word)?,
            Token::Sign("(") => {
                let inner = self.either()?;
                self.expect(")")?;
                return Ok(inner);
            }
            token => {
                return Err(ExpressionError::new(
                    at,
                    format!("expected a value, found {token}"),
                ));
            }
        };
        Ok(Parsed { at, kind })
    }

    fn path(&mut self, at: usize, first: String) -> Result<Kind, ExpressionError> {
        let mut steps = vec![(at, PathStep::Field(first))];
        loop {
            if self.accept(&["."]).is_some() {
                match self.take() {
                    (at, Token::Word(name)) => steps.push((at, PathStep::Field(name))),
                    (at, token) => {
                        return Err(ExpressionError::new(
                            at,
                            format!("expected the name of a field, found {token}"),
                        ));
                    }
                }
            } else if let Some((at, _)) = self.accept(&["["]) {
                steps.push((at, self.index()?));
                self.expect("]")?;
            } else {
                return Ok(Kind::Path(steps));
            }
        }
    }

    fn index(&mut self) -> Result<PathStep, ExpressionError> {
        if self.accept(&["*"]).is_some() {
            return Ok(PathStep::All);
        }
        let sign = if self.accept(&["-"]).is_some() { -1 } else { 1 };
        match self.take() {
            (at, Token::Integer(value)) => i64::try_from(value * sign)
                .map(PathStep::Item)
                .map_err(|_| ExpressionError::new(at, format!("{value} is too large for an index"))),
            (at, token) => Err(ExpressionError::new(
                at,
                format!("expected the number of an element or *, found {token}"),
            )),
        }
    }
}
