// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/rank/rank.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verify/hash_values.hpp>

#include "../../common/text_format.hpp"

namespace train_gpt {

/// The lines of a file of --hashes for one step: `of` is gradients, states, parameters or a slice.
inline std::string hash_lines(std::size_t step, std::string_view of, const std::vector<sk::ValuesHash>& hashes) {
    std::string lines;
    for (const sk::ValuesHash& one : hashes) {
        lines += std::to_string(step) + '\t' + std::string(of) + '\t' + one.path + '\t' + one.kind + '\t' +
                 program::formatted("%016" PRIx64 "\n", one.hash);
    }
    return lines;
}

/// Hashes of the gradients of single slices, before they are added to others: what another run of the step, on
/// another number of ranks, is compared by.
class SliceHashes {
  public:
    SliceHashes(const sk::Model& model, std::size_t slices) : slices_(slices) {
        model.for_each([&](const auto& group) { paths_.push_back(group.path()); });
    }

    void begin_step() { hashes_.assign(slices_ * paths_.size(), 0); }
    void begin_slice(std::size_t slice) { first_ = slice * paths_.size(); }
    /// Adds a group's gradients of the slice, on the host.
    template <class Layer, class Handle>
    void add(const Layer& layer, const Handle& gradients) {
        std::size_t group = 0;
        while (paths_[group] != layer.path()) { ++group; }
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            const auto view = gradients.view(p);
            hashes_[first_ + group] += sk::hash_of_part(layer.parameters()[p], std::span(view.data(), view.size()));
        }
    }
    /// The lines of all slices of the step. Each is one data-parallel rank's; ranks of tp have parts, whose hashes
    /// add up. Collective over the world.
    std::string lines(sk::Rank& rank, std::size_t step) const {
        std::vector<std::uint64_t> all = hashes_;
        sk::all_reduce_in_place(rank.world(), sk::ReduceOp::sum, all);
        std::string lines;
        for (std::size_t at = 0; at < all.size(); at += paths_.size()) {
            std::vector<sk::ValuesHash> slice;
            for (std::size_t g = 0; g < paths_.size(); ++g) { slice.push_back({paths_[g], "gradient", all[at + g]}); }
            lines += hash_lines(step, "slice " + std::to_string(at / paths_.size()), slice);
        }
        return lines;
    }

  private:
    std::size_t slices_;
    std::vector<std::string> paths_;
    std::vector<std::uint64_t> hashes_;  // [slices, groups]; empty: no step was made
    std::size_t first_ = 0;
};

}  // namespace train_gpt
