// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/verify/hash_values.hpp>

namespace train_gpt {

/// The first line of a file of --hashes, by which compare_hashes.py knows it.
inline constexpr std::string_view hashes_begin = "step\tof\tgroup\tkind\thash\n";

/// The lines of a file of --hashes for one step: `of` is gradients, states or parameters.
inline std::string hash_lines(std::size_t step, std::string_view of,
                              const std::vector<shardkit::ValuesHash>& hashes) {
    std::string lines;
    for (const shardkit::ValuesHash& one : hashes) {
        char hash[17];
        std::snprintf(hash, sizeof hash, "%016" PRIx64, one.hash);
        lines +=
            std::to_string(step) + '\t' + std::string(of) + '\t' + one.path + '\t' + one.kind + '\t' + hash + '\n';
    }
    return lines;
}

}  // namespace train_gpt
