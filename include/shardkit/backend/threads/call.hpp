// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/comm/call.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::threads::detail {

/// One rank's part in a collective, as its peers see it.
struct Call {
    Signature signature{};
    const void* input = nullptr;
    void* output = nullptr;
    SourceLocation where{};
    const CallSubject* subject = nullptr;  ///< of the rank's journal, which outlives the call
};
static_assert(sizeof(Call) <= 64, "peers look at one cache line");

/// A message on its way; it lives in the sender's frame, which outlives it because a sender leaves only once the
/// message is consumed, withdrawn, or can no longer be claimed.
struct Message {
    Signature signature{};
    const void* data = nullptr;
    SourceLocation where{};
    /// Written by the receiver before it consumes a message that it did not expect.
    bool refused = false;
    Signature expected{};
    SourceLocation expected_at{};
};

}  // namespace shardkit::threads::detail
