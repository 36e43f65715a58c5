//! How likely an array is to lose data: Monte Carlo of failures, latent errors, scrubs and rebuilds.
