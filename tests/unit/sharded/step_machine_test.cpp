// SPDX-License-Identifier: Apache-2.0
// Groups and the step machine, beside each other: verbs in any order, also in those that are refused. What a group
// refuses, calls on its communicators, and holds of its leased buffers is what the machine says of the act.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/machine/step_machine.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "unit/sharded/custom_policies.hpp"

namespace step_machine_test {

namespace {

namespace sk = shardkit;
using sk::detail::Applied;
using sk::schedule::Act;
using sk::schedule::StepRule;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Weight : sk::Param<"weight", float, 12, 5> {};
struct Bias : sk::Param<"bias", float, 7> {
    using TensorParallel = sk::tp::PartialSum;
};
using Block = sk::Params<Weight, Bias>;
/// Addends of another type than the sums: a later reduction takes a buffer beside the result.
using Half = sk::Precision<float, sk::bf16, float, float>;

/// Calls by verb: all_gather, reduce_scatter, all_reduce.
using Calls = std::array<std::uint64_t, 3>;

template <class Rank, class Precision>
class Driven {
    using Layer = sk::Sharded<Block, sk::DynamicPolicy, Precision>;

  public:
    Driven(Rank& rank, const sk::DynamicPolicy& policy, bool frozen, std::uint64_t seed)
        : rank_(rank),
          a_(rank, "a", {}, options(policy, frozen)),
          b_(rank, "b", {}, options(policy, false)),
          model_(sk::Model{a_}),
          beside_(sk::Model{b_}),
          optimizer_(model_, {.learning_rate = 0.5}),
          numbers_(seed),
          rows_(state().geometry().table) {
        its_.current = !rows_.gathers || rows_.find(sk::detail::Role::gathered) == nullptr;
    }

    void run(std::size_t acts) {
        for (std::size_t i = 0; i < acts; ++i) {
            const std::size_t verb = below(10);
            CAPTURE(i);
            CAPTURE(verb);
            one(verb);
            CHECK(holds_full() == full_);
            CHECK(can_take_gradients_beside() == !gradients_);  // both groups take turns in one buffer
        }
        windows_.clear();
        handle_.reset();
    }
    std::size_t refused() const { return refused_; }
    const Calls& calls() const { return calls_; }

  private:
    static sk::ShardedOptions<Block, sk::DynamicPolicy> options(const sk::DynamicPolicy& policy, bool frozen) {
        sk::ShardedOptions<Block, sk::DynamicPolicy> made{policy};
        if (frozen) { made.frozen = Block::all(); }
        return made;
    }
    auto& state() { return sk::spi::group(a_); }
    bool holds_full() { return rows_.leases_full && state().parameters().full().data() != nullptr; }
    bool can_take_gradients_beside() {
        if (!rows_.reduces_each) { return true; }
        sk::Accumulation probe{beside_, sk::until_reduced};
        try {
            static_cast<void>(probe.gradients(b_));
        } catch (const sk::UsageError&) { return false; }
        return true;
    }
    Calls logged() const {
        const auto of = [&](sk::Verb verb) { return rank_.traffic().total(verb).calls; };
        return {of(sk::Verb::all_gather), of(sk::Verb::reduce_scatter), of(sk::Verb::all_reduce)};
    }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(numbers_() % n); }

    /// Calls `verb`, of which the machine says whether it is refused; what it communicates is in `expected_`.
    template <class Verb>
    void call(bool refused, Verb verb) {
        const Calls before = logged();
        bool threw = false;
        try {
            verb();
        } catch (const sk::UsageError&) { threw = true; }
        CHECK(threw == refused);
        refused_ += refused ? 1U : 0U;
        const Calls after = logged();
        for (std::size_t i = 0; i < after.size(); ++i) {
            CHECK(after[i] - before[i] == expected_[i]);
            calls_[i] += expected_[i];
        }
        expected_ = {};
    }
    void take_on(const Applied& applied) {
        for (const sk::detail::CollectiveRow& row : applied.calls) {
            const auto& group = state().geometry();
            const bool nothing = row.extent == sk::detail::Extent::tp_sum &&
                                 intersect(group.range(rows_.reduced), group.tp_sum).empty();
            if (nothing || state().communicators()[row.over].size() == 1) { continue; }
            ++expected_[row.verb == sk::Verb::all_gather ? 0 : row.verb == sk::Verb::reduce_scatter ? 1 : 2];
        }
        its_ = applied.next;
        if (applied.works_in == sk::detail::Role::gathered) { full_ = !applied.gives_back; }
        if (applied.works_in == sk::detail::Role::gradients) { gradients_ = !applied.gives_back; }
    }
    void take_on(Act act) { take_on(apply_act(its_, act, rows_)); }
    void reduce_due() {
        while (const auto act = due_reduction(its_, rows_)) { take_on(*act); }
    }
    bool breaks(Act act, StepRule rule) const { return apply_act(its_, act, rows_).broken.has(rule); }
    bool refuses_gradients() const { return !apply_act(its_, Act::zero, rows_).broken.empty(); }
    /// Says that all microbatches are in, as `add` of the last one and `reduce` do.
    bool refuses_finish() {
        const Applied finished = apply_finish(its_);
        if (!finished.broken.empty()) { return true; }
        its_ = finished.next;
        reduce_due();
        return false;
    }
    void end_step() { begun_ = false; }

    /// Before the microbatch that the machine has added: whether it is the last one, unless its slices say so.
    void say_which(bool last) {
        if (rows_.slices == 0) { accumulation_->set_microbatches(a_, its_.added + (last ? 0U : 100U)); }
    }
    /// Behind the microbatch that the machine has added.
    bool is_last(bool last) const { return rows_.slices == 0 ? last : its_.added == rows_.slices; }

    void one(std::size_t verb) {
        const bool last = below(3) == 0;
        switch (verb) {
            case 0:  // a step begins
                if (accumulation_ || reduced_) {
                    call(begun_, [&] { sk::Accumulation second{model_, sk::until_reduced}; });
                    break;
                }
                if (its_.out) {
                    call(true, [&] { accumulation_.emplace(model_, sk::until_reduced); });
                    break;
                }
                call(false, [&] { accumulation_.emplace(model_, sk::until_reduced); });
                begun_ = true;
                its_ = {.current = its_.current, .coded = its_.coded, .unused = its_.unused, .windows = its_.windows};
                gradients_ = false;
                break;
            case 1:
            case 2:
                if (windows_.size() == 3) { break; }
                if (due_gather(its_, rows_)) { take_on(Act::gather); }
                take_on(Act::use);
                call(false, [&] { windows_.push_back(a_.unshard()); });
                break;
            case 3:
            case 4: {
                if (windows_.empty()) { break; }
                const Applied applied = apply_act(its_, Act::close, rows_);
                take_on(applied);
                if (applied.gives_back) { its_ = given_back(its_); }
                call(false, [&] {
                    a_.reshard(std::move(windows_.back()));
                    windows_.pop_back();
                });
                break;
            }
            case 5: {
                if (!accumulation_) { break; }
                const bool refused = refuses_gradients();
                if (!refused) { take_on(Act::zero); }
                call(refused, [&] {
                    auto taken = accumulation_->gradients(a_);
                    handle_.emplace(std::move(taken));
                });
                break;
            }
            case 6:
                if (handle_ && accumulation_) {
                    take_on(Act::add);
                    reduce_due();
                    const bool refused = is_last(last) && refuses_finish();
                    call(refused, [&] {
                        say_which(last);
                        accumulation_->add(std::move(*handle_));
                    });
                    handle_.reset();
                } else if (handle_ && below(2) == 0) {  // it has outlived its step
                    its_.out = false;
                    its_.lost = true;
                    gradients_ = false;
                    call(false, [&] { handle_.reset(); });
                } else if (accumulation_) {
                    bool refused = refuses_gradients();
                    const bool adds = !refused;
                    if (adds) {
                        take_on(Act::zero);
                        take_on(Act::add);
                        reduce_due();
                        refused = is_last(last) && refuses_finish();
                    }
                    call(refused, [&] {
                        if (adds) { say_which(last); }
                        accumulation_->add_zero(a_);
                    });
                }
                break;
            case 7:
                if (handle_ && below(4) == 0) {
                    its_.out = false;
                    its_.lost = true;
                    gradients_ = false;
                    call(false, [&] { handle_.reset(); });
                } else if (accumulation_ && below(3) == 0) {
                    // A frozen group may be skipped: there is nothing to leave out.
                    const bool refused = breaks(Act::skip, StepRule::gradients_of_step);
                    if (!refused) { its_ = apply_act(its_, Act::skip, rows_).next; }
                    call(refused, [&] { accumulation_->skip(a_); });
                }
                break;
            case 8: {
                if (!accumulation_) { break; }
                const bool finishes = rows_.trainable && !its_.skipped && !its_.finished;
                const bool refused = finishes && (!has_all_slices(its_, rows_) || refuses_finish());
                call(refused, [&] {
                    if (finishes && its_.added > 0) { say_which(true); }
                    reduced_.emplace(sk::reduce(std::move(*accumulation_), sk::mean));
                });
                if (!refused) { accumulation_.reset(); }
                break;
            }
            default: {
                if (!reduced_) {
                    if (!accumulation_ || below(5) > 0) { break; }
                    call(false, [&] { accumulation_.reset(); });  // it is given up, and a handle may outlive it
                    end_step();
                    break;
                }
                if (below(4) == 0) {  // it is given up
                    call(false, [&] { reduced_.reset(); });
                    end_step();
                    break;
                }
                const bool refused = breaks(Act::update, StepRule::windows_end_in_step);
                if (!refused && rows_.trainable && !its_.skipped) { its_ = apply_act(its_, Act::update, rows_).next; }
                call(refused, [&] { optimizer_.step(std::move(*reduced_)); });
                reduced_.reset();
                end_step();
            }
        }
    }

    Rank& rank_;
    Layer a_;
    Layer b_;
    decltype(sk::Model{std::declval<Layer&>()}) model_;
    decltype(sk::Model{std::declval<Layer&>()}) beside_;
    decltype(sk::SGD{std::declval<decltype(model_)&>(), {}}) optimizer_;
    std::mt19937_64 numbers_;
    // What the user has.
    using Accumulating = decltype(sk::Accumulation{std::declval<decltype(model_)&>()});
    std::vector<decltype(std::declval<Layer&>().unshard())> windows_;
    std::optional<Accumulating> accumulation_;
    std::optional<decltype(sk::reduce(std::declval<Accumulating>(), sk::mean))> reduced_;
    std::optional<decltype(std::declval<Accumulating&>().gradients(std::declval<Layer&>()))> handle_;
    // What the machine says.
    const sk::detail::GroupRows rows_;
    sk::detail::GroupStep its_;
    bool begun_ = false;
    bool full_ = false;
    bool gradients_ = false;
    Calls expected_{};
    Calls calls_{};
    std::size_t refused_ = 0;
};

template <class Precision>
void drive(const Mesh& mesh, const sk::DynamicPolicy& policy, bool frozen, std::uint64_t seed, Calls& calls,
           std::size_t& refused) {
    CAPTURE(policy.name());
    CAPTURE(mesh.describe());
    CAPTURE(seed);
    const auto body = [&](auto& rank) {
        Driven<std::remove_reference_t<decltype(rank)>, Precision> driven(rank, policy, frozen, seed);
        driven.run(250);
        if (rank.rank() != 0) { return; }
        for (std::size_t i = 0; i < calls.size(); ++i) { calls[i] += driven.calls()[i]; }
        refused += driven.refused();
    };
    sk::threads::run(mesh, body, {.in_flight = 1});
}

}  // namespace

TEST_CASE("random verbs: a group refuses, communicates and holds what the step machine says") {
    const std::array meshes{Mesh(2, 1, 1), Mesh(1, 1, 1), Mesh(1, 2, 1), Mesh(2, 1, 2)};
    const std::array policies{sk::DynamicPolicy(sk::NoShard{}),
                              sk::DynamicPolicy(sk::ShardOptimizer{}),
                              sk::DynamicPolicy(sk::ShardGradOp{}),
                              sk::DynamicPolicy(sk::FullShard{}),
                              sk::DynamicPolicy(sk::HybridShard<1>{}),
                              sk::DynamicPolicy(sk::HybridOptimizer<1>{}),
                              sk::DynamicPolicy(sk::SecondaryShard<1>{}),
                              sk::DynamicPolicy(toy::KeepUntilUpdate{}),
                              sk::DynamicPolicy(toy::ReplicateGradients{}),
                              sk::DynamicPolicy(toy::ReduceOnce{}),
                              sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{sk::Slices{4}}),
                              sk::DynamicPolicy(sk::TreeSums<sk::ShardOptimizer>{sk::Slices{8}}),
                              sk::DynamicPolicy(sk::TreeSums<sk::ShardGradOp>{sk::Slices{2}}),
                              sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{sk::Slices{8}})};
    Calls calls{};
    std::size_t refused = 0;
    std::uint64_t seed = 1;
    for (const Mesh& mesh : meshes) {
        for (const sk::DynamicPolicy& policy : policies) {
            if (policy.values(1).slices > 0 && mesh.cp() > 1) { continue; }
            drive<sk::Precision<float>>(mesh, policy, false, seed++, calls, refused);
            drive<Half>(mesh, policy, false, seed++, calls, refused);
            if (mesh.size() == 2) { drive<Half>(mesh, policy, true, seed++, calls, refused); }
        }
    }
    for (const std::uint64_t each : calls) { CHECK(each > 50); }
    CHECK(refused > 500);
}

}  // namespace step_machine_test
