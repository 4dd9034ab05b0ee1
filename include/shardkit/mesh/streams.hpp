// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit {

/// The streams that a rank's work and its collectives are given to; the library inserts the events between them.
/// Default streams of the type where the engine needs no others.
template <class Stream>
struct Streams {
    Stream compute{};
    Stream communication{};
};

}  // namespace shardkit
