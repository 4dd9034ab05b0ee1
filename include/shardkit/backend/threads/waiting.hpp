// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <shardkit/comm/verb.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::threads {

/// What a rank waits for.
struct Waiting {
    Verb verb{};
    const std::string* axes = nullptr;
    std::uint64_t sequence = 0;
    SourceLocation where{};
};

}  // namespace shardkit::threads
