//! Bags as data: tables, images, training data, catalogs of many bags, pictures. Its users see it through `holdall`.
#![forbid(unsafe_code)]

#[cfg(feature = "parquet")]
pub mod catalog;
pub mod export;
pub mod look;
#[cfg(feature = "parquet")]
mod parquet_file;
pub mod plot;
#[cfg(feature = "parquet")]
pub mod training;
