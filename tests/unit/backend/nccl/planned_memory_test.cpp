// SPDX-License-Identifier: Apache-2.0
// What a rank on a GPU holds at most of device and of pinned memory, beside what planner::plan_memory says before
// there is a rank, to the byte: with states and masters on the device and in pinned memory. planned_memory_test.cpp
// of unit/steady has every other choice, on the host.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/comm/call.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/memory_plan.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>

#include "paced_ranks.hpp"

namespace planned_memory_test {

namespace {

namespace sk = shardkit;
using List = sk::TensorList<sk::bf16>;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Account {
    std::size_t bytes = 0;
    std::size_t peak = 0;
};
thread_local Account of_verbs;  // of this rank's thread
thread_local Account of_own_kernels;

/// A buffer that is on an account while it lives.
template <sk::Element T>
class Counted {
    using Memory = sk::gpu::detail::ArenaBuffer<T>;

  public:
    Counted() noexcept = default;
    Counted(Memory memory, Account& account)
        : memory_(std::move(memory)), bytes_(memory_.size() * sizeof(T)), account_(&account) {
        account.bytes += bytes_;
        account.peak = std::max(account.peak, account.bytes);
    }
    Counted(Counted&& other) noexcept
        : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, 0)), account_(other.account_) {}
    Counted& operator=(Counted&& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(bytes_, other.bytes_);
        std::swap(account_, other.account_);
        return *this;
    }
    ~Counted() {
        if (account_ != nullptr) { account_->bytes -= bytes_; }
    }
    T* data() const noexcept { return memory_.data(); }
    std::size_t size() const noexcept { return memory_.size(); }
    std::span<T> span() const noexcept { return memory_.span(); }

  private:
    Memory memory_;
    std::size_t bytes_ = 0;
    Account* account_ = nullptr;
};

struct Communicator : gpu_ranks::Comm {
    using Base = gpu_ranks::Comm;

    Communicator(Base base) : Base(std::move(base)) {}  // implicit: a Rank makes one of a World's

    Communicator named(std::string_view axes) const { return {Base::named(axes)}; }
    Communicator split(std::size_t color, std::size_t key, std::string_view axes, const sk::Call& call) const {
        return {Base::split(color, key, axes, call)};
    }
    template <sk::Element T>
    Counted<T> buffer(std::size_t n) const {
        return {Base::template buffer<T>(n), of_verbs};
    }
    template <sk::Element T>
    Counted<T> local_buffer(std::size_t n) const {
        return {Base::template local_buffer<T>(n), of_own_kernels};
    }
};
struct Engine : gpu_ranks::Engine {
    using Communicator = planned_memory_test::Communicator;
    template <class T>
    using Buffer = Counted<T>;
    using PlainCopy = sk::gpu::DeviceCopy<Engine>;
};

constexpr sk::StateFormat format = sk::StateFormat::block8;
using Layer = sk::Sharded<List, sk::DynamicPolicy, Engine>;

void check(sk::Context<Engine>& rank, const typename Layer::Options& options) {
    const List tensors{{"weight", {263, 61}}, {"bias", {61}}, {"one", {1}}};
    const std::vector<std::string> paths{"layers.0", "layers.1", "layers.2"};
    std::vector<sk::planner::GroupDescription> described;
    for (const std::string& path : paths) {
        described.push_back(sk::describe_group<List, sk::DynamicPolicy>(path, tensors, rank.grid(), options));
    }
    const sk::planner::MemoryPlan planned =
        sk::planner::plan_memory(described, {.microbatches = 2,
                                             .optimizer_states = {2, format},
                                             .offload_slot_bytes = rank.options().offload_slot_bytes,
                                             .engine = rank.world().traits()});
    const auto device = static_cast<int>(rank.rank());
    const std::size_t pinned = standin::pinned_bytes(device);
    of_verbs = of_own_kernels = {};
    {
        std::vector<Layer> layers;
        for (const std::string& path : paths) { layers.emplace_back(rank, path, tensors, options); }
        sk::Model model{layers};
        sk::AdamW optimizer{model, sk::states_in<format>};
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model, 2};
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                for (Layer& layer : layers) {
                    auto window = layer.unshard();
                    auto gradients = accumulation.gradients(layer);
                    layer.reshard(std::move(window));
                    accumulation.add(std::move(gradients));
                }
            }
            optimizer.step(std::move(accumulation), {.max_norm = 1});
        }
        // Staging and the engine's kind are the World's own.
        CHECK(of_verbs.peak == (planned.total() - planned.offload_slots - planned.staging - planned.engine).value);
        // Tables of launches, and numbers that updates on the host read, are small, and no plan counts them.
        constexpr std::size_t tables = 4096;
        CHECK(of_own_kernels.peak >= planned.offload_slots.value);
        CHECK(of_own_kernels.peak < planned.offload_slots.value + tables);
        const std::size_t on_host = standin::pinned_bytes(device) - pinned;
        CHECK(on_host >= planned.host.value);
        CHECK(on_host <= planned.host.value + (options.offload == sk::Offload::update ? 1024U : 0U));
        CHECK((planned.host.value > 0) == (options.offload != sk::Offload::none));
    }
}

}  // namespace

TEST_CASE("nccl: what a rank holds at most is the plan to the byte, with states and masters here and there") {
    for (const std::size_t ranks : {1U, 2U, 3U}) {
        for (const sk::DynamicPolicy& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
                                                sk::DynamicPolicy(sk::ShardOptimizer{})}) {
            for (const auto master : {sk::MasterWeights::kept, sk::MasterWeights::split, sk::MasterWeights::none}) {
                CAPTURE(ranks);
                CAPTURE(std::string(policy.name()));
                CAPTURE(static_cast<int>(master));
                const auto on_rank = [&](auto& its, const auto&) {
                    for (const auto offload : {sk::Offload::none, sk::Offload::states, sk::Offload::update}) {
                        CAPTURE(static_cast<int>(offload));
                        sk::Rank<Engine, Mesh> rank{its.mesh(), Communicator(its.world()), its.options(),
                                                    its.streams()};
                        typename Layer::Options options{policy};
                        options.master = master;
                        options.offload = offload;
                        check(rank, options);
                    }
                };
                CHECK(paced_ranks::run(Mesh(ranks, 1, 1), paced_ranks::one_lazy[0],
                                       {.offload_slot_bytes = sk::least_offload_slot_bytes}, on_rank) == "");
            }
        }
    }
}

}  // namespace planned_memory_test
