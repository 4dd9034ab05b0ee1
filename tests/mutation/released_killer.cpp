// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of gradients that are not zeroed, of steps in backward and of elements of one byte
// must fail: the bits of zeroed gradients, what lies between parameters, and the arena, rules and times of a
// schedule.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "temporary_folder.hpp"

namespace sk = shardkit;

namespace {

void expect(const char* what, bool holds) {
    if (holds) { return; }
    std::printf("%s\n", what);
    std::exit(1);
}

using Layer = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;

sk::TensorList<float> tensors(bool overwritten) {
    return {{"up", {5, 7}, {.overwritten = overwritten}},
            {"bias", {3}},
            {"down", {7, 5}, {.overwritten = overwritten}},
            {"table", {3}, {.frozen = true, .overwritten = overwritten}}};
}

/// The parameters after two steps of two microbatches, of which rank 0 does not use the last.
std::vector<float> trained(const sk::DynamicPolicy& policy, bool overwritten) {
    std::vector<float> all;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer layer{rank, "layer", tensors(overwritten), Layer::Options{policy}};
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model, 2};
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                if (microbatch == 1 && rank.rank() == 0) {
                    accumulation.add_zero(layer);
                    continue;
                }
                auto gradients = accumulation.gradients(layer);
                for (const char* const name : {"up", "bias", "down"}) {
                    const bool overwrites = gradients.overwrites(name);
                    float number = 0.25F + static_cast<float>(rank.rank());
                    for (float& element : gradients.view(name)) { element = overwrites ? number : element + number; }
                }
                accumulation.add(std::move(gradients));
            }
            optimizer.step(std::move(accumulation));
        }
        for (const char* const name : {"up", "bias", "down"}) {
            std::vector<float> values(name == std::string("bias") ? 3 : 35);
            layer.read_full(name, values);
            if (rank.rank() == 0) { all.insert(all.end(), values.begin(), values.end()); }
        }
    });
    return all;
}

void check_zeros() {
    for (const sk::DynamicPolicy& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                            sk::DynamicPolicy(sk::FullShard{})}) {
        expect("other bits than with zeroed gradients", trained(policy, true) == trained(policy, false));
    }
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Layer layer{rank, "layer", tensors(true), Layer::Options{sk::DynamicPolicy(sk::FullShard{})}};
        sk::Model model{layer};
        auto& state = sk::spi::group(layer);
        sk::Accumulation accumulation{model};
        {
            const auto spoiled = accumulation.gradients(layer);
            for (float& element : std::span<float>(state.gradients().full())) { element = 7; }
        }
        const auto handle = accumulation.gradients(layer);
        const std::span<const float> full = state.gradients().full();
        std::size_t left = 0;
        for (const std::size_t p : {0U, 2U}) {
            const sk::IndexRange range = state.geometry().parameters[p].range;
            for (std::size_t i = range.begin; i < range.end; ++i) { left += full[i] == 7 ? 1U : 0U; }
        }
        std::size_t zeros = 0;
        for (const float element : full) { zeros += element == 0 ? 1U : 0U; }
        expect("gradients that are overwritten were zeroed", left == 70);
        expect("what lies between them was not", zeros == full.size() - 70);
    });
}

struct Weight : sk::Param<"weight", float, 64, 32> {};
using Mixed = sk::Precision<float, sk::bf16, float, float>;
constexpr std::size_t full_numel = 64 * 32;

template <class Policy, class Precision>
std::vector<sk::planner::GroupDescription> released() {
    sk::ShardedOptions<sk::Params<Weight>, Policy> options;
    options.gradient_release = sk::GradientRelease::at_update;
    std::vector<sk::planner::GroupDescription> groups;
    for (const char* const name : {"a", "b", "c"}) {
        groups.push_back(
            sk::describe_group<Weight, Policy, Precision>(name, {}, sk::DeviceMesh<2>{}.grid(), options));
    }
    return groups;
}
template <class Policy, class Precision>
void check_arena(std::uint64_t at_end, std::uint64_t in_backward) {
    const auto groups = released<Policy, Precision>();
    const sk::Schedule step = sk::schedule::layered_step(groups, {.norms = 0});
    expect("another arena of a plain step", sk::schedule::arena_bytes(step, groups).value == at_end);
    const sk::Schedule early = sk::schedule::update_in_backward(step, groups);
    expect("another arena of a step in backward", sk::schedule::arena_bytes(early, groups).value == in_backward);
    expect("a step in backward breaks a rule", sk::schedule::check(early, groups).empty());
}

void check_schedules() {
    check_arena<sk::NoShard, sk::Precision<float>>(3 * full_numel * 4, full_numel * 4);
    check_arena<sk::ShardGradOp, Mixed>(full_numel * 2 + 3 * (full_numel / 2 * 4),
                                        full_numel * 2 + full_numel / 2 * 4);
    const auto groups = released<sk::ShardOptimizer, sk::Precision<float>>();
    sk::schedule::DryStep again(groups);
    again.step_in_backward();
    for (const std::size_t g : {2U, 1U, 0U}) { again.unshard(g).gradients(g).reshard(g).add(g); }
    again.unshard(2).reshard(2);
    bool found = false;
    for (const sk::schedule::Violation& violation : sk::schedule::check(again.schedule(), groups)) {
        found = found || violation.rule == sk::schedule::StepRule::windows_before_update;
    }
    expect("a window behind its group's update", found);
    const std::array kept{sk::describe_group<Weight, sk::FullShard>("a", {}, sk::DeviceMesh<2>{}.grid()),
                          sk::describe_group<Weight, sk::FullShard>("b", {}, sk::DeviceMesh<2>{}.grid())};
    const sk::Schedule plain = sk::schedule::layered_step(kept);
    const sk::Schedule overlapped = sk::schedule::overlap_reductions(plain, kept);
    expect("an overlap that takes no memory",
           sk::schedule::peak(overlapped, kept) == sk::schedule::peak(plain, kept) + sk::ByteCount(full_numel * 4));
    bool by_their_lanes = true;  // a reduction gives gradients back, the end of a window parameters
    for (const sk::detail::ScheduledSlot& slot : sk::detail::slots_of(plain, kept)) {
        const bool gradients = slot.use == sk::detail::SlotUse::full_gradients;
        by_their_lanes = by_their_lanes && slot.given_back_by_compute() == !gradients;
    }
    expect("memory that another lane gives back", by_their_lanes);
    // Bytes that are zeroed: of all microbatches where each is reduced.
    const auto zeroed = [&](std::size_t microbatches, const auto& of) {
        return sk::plan(of, sk::DeviceMesh<2>{}.grid(), {.microbatches = microbatches}).zeroed.value;
    };
    expect("other bytes zeroed",
           zeroed(5, kept) == 5 * 2 * full_numel * 4 && zeroed(5, groups) == 3 * full_numel * 4);
}

void check_record() {
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer layer{rank, "layer", tensors(false), Layer::Options{sk::DynamicPolicy(sk::NoShard{})}};
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        const sk::Schedule recorded = sk::schedule::record(model, [&] {
            sk::Accumulation accumulation{model};
            optimizer.step_in_backward(accumulation);
            accumulation.add_zero(layer);
            optimizer.step(std::move(accumulation));
        });
        std::size_t updates = 0;
        for (const sk::schedule::Op& op : recorded.ops()) {
            updates += op.act == sk::schedule::Act::update ? 1U : 0U;
        }
        expect("an update that is not recorded", updates == 1);
    });
}

/// Multiples of 1 / Denominator.
template <int Denominator>
struct Fixed {
    std::int8_t code = 0;

    Fixed() = default;
    explicit Fixed(float value) noexcept : code(static_cast<std::int8_t>(value * Denominator)) {}
    explicit operator float() const noexcept { return static_cast<float>(code) / Denominator; }
};

}  // namespace

template <int Denominator>
struct shardkit::element_traits<Fixed<Denominator>> {
    static constexpr ElementType type = ElementType::uint8;
    using Arithmetic = float;
    static constexpr double scale = 1.0 / Denominator;
};

namespace {

template <class F>
bool throws(F&& f) {
    try {
        f();
    } catch (const std::exception&) { return true; }
    return false;
}

template <class Element, class Rank>
auto row(Rank& rank, bool frozen = true) {
    return sk::Sharded<sk::TensorList<Element>, sk::FullShard>{rank, "row", {{"w", {4}, {.frozen = frozen}}}};
}

void check_bytes() {
    const temporary_folder::Folder folder;
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        {
            auto eighths = row<Fixed<8>>(rank);
            sk::checkpoint::save(rank, folder.path(), 0, sk::checkpoint::State{sk::Model{eighths}});
        }
        const std::string saved = sk::checkpoint::latest(rank, folder.path())->path;
        const auto loads = [&](auto element) {
            auto other = row<decltype(element)>(rank);
            return !throws([&] { sk::checkpoint::load(rank, saved, sk::checkpoint::State{sk::Model{other}}); });
        };
        expect("codes of the same scale", loads(Fixed<8>{}));
        expect("codes of another scale", !loads(Fixed<16>{}));
        expect("codes taken for bytes", !loads(std::byte{}));
        expect("bytes that are trained", throws([&] { row<std::byte>(rank, false); }));
    });
}

}  // namespace

int main() {
    check_bytes();
    check_zeros();
    check_schedules();
    check_record();
    std::puts("released");
}
