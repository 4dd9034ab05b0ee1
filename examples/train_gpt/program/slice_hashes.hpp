// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verify/hash_values.hpp>

namespace train_gpt {

/// Hashes of the gradients of single slices, before they are added to others: what a slice that is computed again, on
/// another number of ranks, is compared by.
class SliceHashes {
  public:
    /// Groups in the order in which hashes are listed.
    explicit SliceHashes(std::vector<std::string> paths) : paths_(std::move(paths)) {}

    void begin_step() { numbers_.clear(); }
    void begin_slice(std::size_t slice) {
        numbers_.push_back(slice);
        numbers_.resize(numbers_.size() + paths_.size());
    }
    /// Adds a group's gradients of the slice, on the host.
    template <class Layer, class Handle>
    void add(const Layer& layer, const Handle& gradients) {
        std::size_t group = 0;
        while (paths_[group] != layer.path()) { ++group; }
        std::uint64_t& hash = numbers_[numbers_.size() - paths_.size() + group];
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            const auto view = gradients.view(p);
            hash += shardkit::hash_of_part(layer.parameters()[p], std::span(view.data(), view.size()));
        }
    }
    /// Returns the hashes of all slices of the step, each group's one behind the other; empty but on rank 0. Ranks of
    /// tp have parts of a slice, whose hashes add up. Collective over the world, of which every rank has as many
    /// slices.
    std::vector<std::vector<shardkit::ValuesHash>> gather(shardkit::Rank& rank) const {
        std::vector<std::uint64_t> all(numbers_.size() * rank.world_size());
        shardkit::all_gather(rank.world(), numbers_, all, rank.compute_stream());
        std::vector<std::vector<shardkit::ValuesHash>> slices;
        if (rank.rank() != 0) { return slices; }
        for (std::size_t at = 0; at < all.size(); at += 1 + paths_.size()) {
            const auto slice = static_cast<std::size_t>(all[at]);
            if (slices.size() <= slice) { slices.resize(slice + 1); }
            if (slices[slice].empty()) {
                for (const std::string& path : paths_) { slices[slice].push_back({path, "gradient", 0}); }
            }
            for (std::size_t g = 0; g < paths_.size(); ++g) { slices[slice][g].hash += all[at + 1 + g]; }
        }
        return slices;
    }

  private:
    std::vector<std::string> paths_;
    std::vector<std::uint64_t> numbers_;  // a slice, and its hash of each group; the next one
};

}  // namespace train_gpt
