// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/host/stream_elements.hpp>

namespace shardkit::host::detail {

/// Where a reduction's results go, and how they are written.
template <class Out>
struct Result {
    Out* data;
    Store store = Store::cached;
};

}  // namespace shardkit::host::detail
