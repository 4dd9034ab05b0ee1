// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/comm/call.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::threads::detail {

/// Holds a message on its way; it lives in the sender's frame, which outlives it because a sender leaves only once
/// the message is consumed, withdrawn, or can no longer be claimed.
struct Message {
    Signature signature{};
    const void* data = nullptr;
    SourceLocation where{};
    /// Tells the sender that the receiver refused; written by the receiver before it consumes a message that it did
    /// not expect.
    bool refused = false;
    Signature expected{};
    SourceLocation expected_at{};
};

}  // namespace shardkit::threads::detail
