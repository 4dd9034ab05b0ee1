// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <shardkit/step/model.hpp>

namespace shardkit SHARDKIT_FACE {

/// A model's full parameters, current on every rank while this object lives. Windows of its groups open without
/// communication, on any rank and in any order. Move-only; its end is local work.
class FullParams {
  public:
    FullParams(const Model& groups, SourceLocation where);
    FullParams(FullParams&& other) noexcept
        : open_(std::exchange(other.open_, {})), shown_(std::exchange(other.shown_, 0)) {}
    FullParams& operator=(FullParams&& other) noexcept {
        FullParams ending(std::move(other));  // ends what this object held
        std::swap(open_, ending.open_);
        std::swap(shown_, ending.shown_);
        return *this;
    }
    ~FullParams();

  private:
    FullParams() = default;  // so that the destructor runs when the constructor that opens windows throws

    std::vector<detail::Group*> open_;
    std::size_t shown_ = 0;  // how many of `open_` are in use
};

/// Makes the full parameters of every group current on all ranks, here and nowhere else: for work that one rank does
/// alone (evaluation, sampling, saving). It corresponds to PyTorch's FSDP.summon_full_params.
///     const auto full = summon_full_params(model);  // on every rank
///     if (rank.rank() == 0) { const auto w = layer.unshard(Gathers::never); ... }
/// While the result lives, an optimizer's step, load and initialize are refused, as under any window.
/// Order:   collective as an unshard of each group, in the model's order; the host does not wait.
/// Cost:    a gather of each group whose full copy is stale; memory for the full parameters of the groups that are
///          sharded at rest, allocated here and freed with the last window
/// @throws  MemoryError when there is none; CommError when the engine fails
[[nodiscard]] inline FullParams summon_full_params(const Model& groups,
                                                   SourceLocation where = SourceLocation::current()) {
    return {groups, where};
}

#ifndef SHARDKIT_COMPILED
SHARDKIT_CORE_INLINE FullParams::FullParams(const Model& groups, SourceLocation where) : FullParams() {
    static_cast<void>(detail::rank_of(groups, where));
    open_.reserve(groups.size());
    for (detail::Group& group : spi::groups(groups, where)) {
        group.summon_window(where);
        open_.push_back(&group);
    }
    for (; shown_ < open_.size(); ++shown_) { open_[shown_]->use_window(where); }
}
SHARDKIT_CORE_INLINE FullParams::~FullParams() {
    for (std::size_t i = 0; i < open_.size(); ++i) {
        i < shown_ ? open_[i]->close_window() : open_[i]->drop_window();
    }
}
#endif

}  // namespace SHARDKIT_FACE
