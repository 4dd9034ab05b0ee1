// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/values_by_kind.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::detail {

/// A range of bytes of a file.
struct FileRange {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;

    constexpr std::uint64_t size() const noexcept { return end - begin; }
    constexpr bool empty() const noexcept { return end <= begin; }
};

/// Returns part `index` of `parts` of a range of a file's bytes, split at page boundaries: without gaps or overlaps,
/// and equal up to a page.
constexpr FileRange piece_of(FileRange range, std::size_t index, std::size_t parts) noexcept {
    const auto cut = [&](std::uint64_t number) {
        if (number == 0) { return range.begin; }
        if (number == parts) { return range.end; }
        // A product of a size and a number of ranks might overflow.
        const std::uint64_t at = range.begin + range.size() / parts * number + range.size() % parts * number / parts;
        return std::max(range.begin, at / page_bytes * page_bytes);
    };
    return {cut(index), cut(index + 1)};
}

/// The pieces of a tensor: where its elements lie on this rank, and which of them this rank writes.
class TensorPieces {
  public:
    /// @pre `tensor` is one of `group`
    TensorPieces(const PlannedTensor& tensor, const SavedGroup& group)
        : tensor_(tensor), values_(*group.values[tensor.values]) {}

    /// Returns whether elements that are contiguous in the file are not contiguous for a page in any rank's memory.
    /// Such tensors are read and written as whole tensors. The same on every rank.
    bool scattered() const noexcept {
        return !tensor_.order.plain() ||
               (part().block() != part().numel() && part().block() * size_of(tensor_.type) < page_bytes);
    }
    /// Calls f(bytes of the file, first element in the flat buffer) for each run of elements `flat` of the parameter.
    /// @pre not scattered
    template <class F>
    void for_each_run(IndexRange flat, F&& f) const {
        const IndexRange range = parameter().range;
        const IndexRange held = intersect(range, flat);
        const std::size_t size = size_of(tensor_.type);
        part().for_each_run(held.begin - range.begin, held.end - range.begin,
                            [&](std::size_t first, std::size_t whole, std::size_t count) {
                                const std::uint64_t begin = tensor_.begin + whole * size;
                                f(FileRange{begin, begin + count * size}, range.begin + first);
                            });
    }
    /// Calls f(bytes of the file, first element in the flat buffer) for each piece that this rank writes. Over all
    /// ranks, each byte of the tensor is in exactly one piece.
    /// @pre not scattered
    template <class F>
    void for_each_piece(F&& f) const {
        const GroupGeometry& geometry = values_.geometry();
        const std::size_t holders = geometry.holders(tensor_.parameter, geometry.table.updated);
        const std::size_t holder = geometry.replica(tensor_.parameter, geometry.table.updated);
        for_each_run(values_.saved, [&](FileRange run, std::size_t flat) {
            const FileRange piece = piece_of(run, holder, holders);
            if (!piece.empty()) { f(piece, flat + (piece.begin - run.begin) / size_of(tensor_.type)); }
        });
    }

    const PlacedParameter& parameter() const noexcept { return values_.geometry().parameters[tensor_.parameter]; }
    const TensorPart& part() const noexcept { return parameter().part; }

  private:
    const PlannedTensor& tensor_;
    const SavedValues& values_;
};

}  // namespace shardkit::detail
