// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/call.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::threads {

/// One rank's part in a collective, as its peers see it.
struct Call {
    Signature signature{};
    const void* input = nullptr;
    void* output = nullptr;
    SourceLocation where{};
};
static_assert(sizeof(Call) <= 64, "peers look at one cache line");

}  // namespace shardkit::threads
