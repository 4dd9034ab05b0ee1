// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include <shardkit/layout/flat_layout.hpp>

namespace layout_oracle {

/// What one element of a flat buffer is: which element of which parameter, or padding.
struct Owner {
    static constexpr std::size_t padding = static_cast<std::size_t>(-1);
    std::size_t parameter = padding;
    std::size_t element = 0;
    friend bool operator==(const Owner&, const Owner&) = default;
};

/// A group's buffer written out element by element, without any of the library's arithmetic.
struct Map {
    std::vector<Owner> elements;  ///< of the whole buffer
    std::size_t total = 0;        ///< up to the end of the last parameter
    std::size_t shard = 0;        ///< elements of one shard

    template <std::size_t N>
    Map(const std::array<std::size_t, N>& numels, std::size_t shards, std::size_t alignment,
        shardkit::Packing packing) {
        for (std::size_t p = 0; p < N; ++p) {
            if (packing == shardkit::Packing::aligned) {
                while (elements.size() % alignment != 0) { elements.push_back({}); }
            }
            for (std::size_t e = 0; e < numels[p]; ++e) { elements.push_back({p, e}); }
        }
        total = elements.size();
        while (shard * shards < total) { shard += alignment; }
        if (packing != shardkit::Packing::exact) { elements.resize(shard * shards); }
    }
};

}  // namespace layout_oracle
