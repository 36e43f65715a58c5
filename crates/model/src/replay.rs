//! Replays of measured traces against modelled drives, and their error.
