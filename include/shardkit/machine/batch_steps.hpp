// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <shardkit/core/constexpr_vector.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/machine/step_machine.hpp>
#include <shardkit/machine/step_rule.hpp>

// The batches of whole matrices in a step: their acts, the order in which an optimizer makes them, and what that
// order must keep. The optimizer, checks, simulations and passes all use these.

namespace shardkit::detail {

/// The acts on a batch, in order.
inline constexpr std::array batch_acts{Act::direct, Act::to_owners, Act::transform, Act::from_owners, Act::apply};

/// One act on a batch.
struct BatchAct {
    Act act{};
    std::uint32_t batch = 0;

    friend constexpr bool operator==(const BatchAct&, const BatchAct&) noexcept = default;
};

/// The state of a step for its batches of whole matrices. Each batch that is under way has one of three slots for
/// what travels, from its first act to its last: one travels to its owners, one is transformed, one travels back.
class BatchSteps {
  public:
    static constexpr std::size_t slots = 3;

    struct Applied {
        BrokenRules broken{};
        std::size_t slot = 0;  ///< the batch's
    };

    SHARDKIT_CONSTEXPR_VECTOR void reserve(std::size_t batches) { batches_.reserve(batches); }
    /// Begins a step.
    SHARDKIT_CONSTEXPR_VECTOR void begin() {
        batches_.clear();
        under_way_ = {};
        updated_ = false;
    }
    /// Returns the number of batches that have begun and are not applied yet.
    constexpr std::size_t under_way() const noexcept {
        std::size_t sum = 0;
        for (const char taken : under_way_) { sum += static_cast<std::size_t>(taken); }
        return sum;
    }
    SHARDKIT_CONSTEXPR_VECTOR Applied apply(Act act, std::uint32_t number) {
        Applied made;
        made.broken.require(!updated_, StepRule::batches_before_updates);
        std::size_t at = 0;
        while (at < batches_.size() && batches_[at].number != number) { ++at; }
        const bool begun = at < batches_.size();
        const bool follows = begun ? batches_[at].acts < batch_acts.size() && batch_acts[batches_[at].acts] == act
                                   : act == Act::direct;
        made.broken.require(follows, StepRule::batches_in_order);
        if (!follows) { return made; }
        if (!begun) {
            std::size_t slot = 0;
            while (slot < slots && under_way_[slot] != 0) { ++slot; }
            made.broken.require(slot < slots, StepRule::batches_in_slots);
            if (slot < slots) { under_way_[slot] = 1; }
            batches_.push_back({number, slot});
        }
        Batch& batch = batches_[at];
        ++batch.acts;
        made.slot = batch.slot;
        if (act == Act::apply && batch.slot < slots) { under_way_[batch.slot] = 0; }
        return made;
    }
    /// Returns the rules that the step's updates break.
    constexpr BrokenRules apply_updates() {
        BrokenRules broken;
        broken.require(under_way() == 0, StepRule::batches_before_updates);
        updated_ = true;
        return broken;
    }

  private:
    struct Batch {
        std::uint32_t number;
        std::size_t slot;
        std::size_t acts = 0;  ///< that were made
    };

    std::vector<Batch> batches_;
    std::array<char, slots> under_way_{};
    bool updated_ = false;
};

/// Calls f(act, batch) for the acts of a step on that many batches, in the order in which an optimizer makes them: a
/// batch travels to its owners while the one before it is transformed, and back while the one behind it is.
template <class F>
constexpr void for_each_batch_act(std::size_t batches, const F& f) {
    const auto make = [&](Act act, std::size_t batch) { f(act, static_cast<std::uint32_t>(batch)); };
    const auto send = [&](std::size_t batch) {
        if (batch == batches) { return; }
        make(Act::direct, batch);
        make(Act::to_owners, batch);
    };
    constexpr std::size_t others = BatchSteps::slots - 1;  // that are under way beside one
    send(0);
    for (std::size_t batch = 0; batch < batches; ++batch) {
        if (batch >= others) { make(Act::apply, batch - others); }
        send(batch + 1);
        make(Act::transform, batch);
        make(Act::from_owners, batch);
    }
    for (std::size_t batch = batches > others ? batches - others : 0; batch < batches; ++batch) {
        make(Act::apply, batch);
    }
}

}  // namespace shardkit::detail
