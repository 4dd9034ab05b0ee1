// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/immortal.hpp>

namespace shardkit::detail {

/// One group's hold on the memory that it has adopted: as long as it lives, no other group of the process adopts any
/// of it, of whichever rank. Both would write to it. A template, so that a file compiles of it what it uses.
template <class>
class BasicAdoptedRanges {
  public:
    /// @throws std::invalid_argument, with both groups, when another one holds some of it, or the two overlap
    BasicAdoptedRanges(std::string_view path, std::span<const std::byte> parameters,
                       std::span<const std::byte> gradients, SourceLocation where)
        : BasicAdoptedRanges() {
        const std::lock_guard lock(mutex());
        add(path, "parameters", parameters, where);
        add(path, "gradients", gradients, where);
    }
    BasicAdoptedRanges(const BasicAdoptedRanges&) = delete;
    BasicAdoptedRanges& operator=(const BasicAdoptedRanges&) = delete;
    ~BasicAdoptedRanges() {
        const std::lock_guard lock(mutex());
        std::erase_if(held(), [this](const Range& range) { return range.holder == this; });
    }

  private:
    struct Range {
        const std::byte* begin;
        const std::byte* end;
        const BasicAdoptedRanges* holder;
        std::string text;  // "parameters of 'blocks.0'"
        SourceLocation where;
    };

    /// So that the destructor runs when the constructor that takes memory throws.
    BasicAdoptedRanges() = default;

    // Immortal: a trainer of static storage lets go of its memory when the process ends.
    static std::mutex& mutex() { return immortal<std::mutex, BasicAdoptedRanges>(); }
    static std::vector<Range>& held() { return immortal<std::vector<Range>>(); }
    void add(std::string_view path, std::string_view what, std::span<const std::byte> memory, SourceLocation where) {
        if (memory.empty()) { return; }
        const Range range{memory.data(), memory.data() + memory.size(), this, concat(what, " of '", path, "'"),
                          where};
        for (const Range& other : held()) {
            if (range.end <= other.begin || other.end <= range.begin) { continue; }
            throw_invalid_argument(where, "'", path, "': the adopted ", what, " lie in the memory of the ",
                                   other.text, ", adopted at ", other.where.file, ":", other.where.line,
                                   "; expected memory of its own for each group and rank");
        }
        held().push_back(range);
    }
};
using AdoptedRanges = BasicAdoptedRanges<void>;

}  // namespace shardkit::detail
