// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <shardkit/comm/signature.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::threads {

/// One rank's part in a collective, as its peers see it.
struct Call {
    Signature signature{};
    const void* input = nullptr;
    void* output = nullptr;
    const std::string* axes = nullptr;
    SourceLocation where{};
    std::uint64_t sequence = 0;  ///< collectives of the group before this one
};

}  // namespace shardkit::threads
