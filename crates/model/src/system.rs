//! Systems: an array behind controllers, links and software, as personalities over one simulation.
