//! What every storage backend can do when a bag is read.
