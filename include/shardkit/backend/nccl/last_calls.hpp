// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <shardkit/comm/journal.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

/// Writes, for the error of a rank that waited in vain, what to compare with the other ranks' errors.
inline std::string last_calls(const Journal& journal) {
    constexpr std::size_t most = 4;
    const std::vector<RecentCall> calls = journal.recent_calls();
    std::string text;
    for (std::size_t i = calls.size() - std::min(calls.size(), most); i < calls.size(); ++i) {
        text += shardkit::detail::concat(text.empty() ? "; this rank's last calls: " : ", ",
                                         shardkit::describe(calls[i].signature, calls[i].where, calls[i].subject),
                                         " over ", calls[i].axes);
    }
    return text;
}

}  // namespace shardkit::nccl::detail
