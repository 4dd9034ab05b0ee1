// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <type_traits>
#include <typeindex>
#include <utility>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cub/combine.hpp>
#include <shardkit/backend/cub/kernel_launches.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/precision.hpp>

#include "../host/batched_kernels.hpp"

/// "Kernels" for streams without a GPU: host functions that run when the stream gets there.
namespace host_functions {

/// Everything that was launched, at addresses that stay: a graph may run it again.
class Kept {
  public:
    static Kept& all() {
        static Kept kept;
        return kept;
    }
    template <class Work>
    Work* keep(const Work& work) {
        auto made = std::make_shared<Work>(work);
        const std::lock_guard lock(mutex_);
        works_.push_back(made);
        return made.get();
    }
    /// @pre nothing is queued any more
    void forget() {
        const std::lock_guard lock(mutex_);
        works_.clear();
    }

  private:
    std::mutex mutex_;
    std::list<std::shared_ptr<void>> works_;
};

/// What test::EnqueuedKernels want of a stream.
class LaunchedStream {
  public:
    LaunchedStream(const shardkit::Stream& stream) : stream_(stream) {}  // implicit: kernels get the engine's

    void synchronize() const { stream_.synchronize(); }
    template <class Work>
    void submit(const Work& work) const {
        Work* const kept = Kept::all().keep(work);
        shardkit::gpu::detail::check(cudaLaunchHostFunc(
                                         stream_.native(), [](void* it) { (*static_cast<Work*>(it))(); }, kept),
                                     "cudaLaunchHostFunc");
    }

  private:
    shardkit::gpu::TimelineRef stream_;
};

/// As many workers for a row as on a GPU, and batches as there.
struct Kernels : shardkit::test::BatchedKernels<LaunchedStream> {
    static constexpr std::size_t row_workers = 32;

    template <shardkit::FloatingElement From, shardkit::FloatingElement To>
    static void convert_rows(const LaunchedStream& stream, const From* from, std::size_t stride, std::span<To> to,
                             std::size_t columns) {
        stream.submit([=] {
            for (std::size_t row = 0; row < to.size() / columns; ++row) {
                shardkit::detail::HostKernels::convert(shardkit::detail::InlineStream{},
                                                       std::span<const From>(from + row * stride, columns),
                                                       to.subspan(row * columns, columns));
            }
        });
    }
    template <shardkit::FloatingElement In, shardkit::FloatingElement Out>
    static void combine(const LaunchedStream& stream, const shardkit::engine::ReductionStep& step) {
        shardkit::gpu::detail::combine_rows<In, Out>(
            step, [&](std::uint64_t indices, const auto& kernel) { for_each_index(stream, indices, kernel); });
    }
};

/// Every kernel that was given to a stream of a device, by its type.
class Given {
  public:
    static Given& all() {
        static Given given;
        return given;
    }
    void add(std::type_index kernel) {
        const std::lock_guard lock(mutex_);
        kernels_.insert(kernel);
    }
    std::set<std::type_index> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(kernels_, {});
    }

  private:
    std::mutex mutex_;
    std::set<std::type_index> kernels_;
};

/// A work that no file launches.
struct NeverLaunched {
    constexpr void operator()() const {}
};
template <class Kernel>
concept Launched = !std::same_as<Kernel, shardkit::engine::RunOnce<NeverLaunched>>;

}  // namespace host_functions

/// What backend/cub/launches.cuh is where there is a GPU.
template <host_functions::Launched Kernel>
struct shardkit::engine::DeviceLaunchOf<Kernel> {
    static void run(const shardkit::Stream& stream, const Kernel& kernel) {
        host_functions::Given::all().add(typeid(Kernel));
        kernel.template on<host_functions::Kernels>(shardkit::gpu::TimelineRef(stream));
    }
};

namespace host_functions {

/// Makes the launches of a rule's updates that a KernelsFor has, of the precisions that tests train with.
template <class Rule, class... Precision>
void launch_updates() {
    const auto launch = []<class Updated, class P>(std::type_identity<Updated>, std::type_identity<P>) {
        using Types = shardkit::detail::UpdateTypes<Updated, typename P::Gather, typename P::Reduction>;
        constexpr bool whole = shardkit::detail::StorageOf<Rule>::type::format == shardkit::StateFormat::full;
        if constexpr (shardkit::detail::updates_alone<Rule> && (whole || std::is_same_v<typename Types::A, float>)) {
            shardkit::gpu::KernelLaunches<shardkit::engine::RuleUpdates<Rule, Types>>::calls();
        }
    };
    (launch(std::type_identity<typename Precision::Master>{}, std::type_identity<Precision>{}), ...);
    (launch(std::type_identity<typename Precision::Written>{}, std::type_identity<Precision>{}), ...);
}

}  // namespace host_functions

/// A file that begins a rule's steps launches its updates, too.
template <class Rule>
struct shardkit::engine::DeviceLaunchOf<shardkit::engine::ForEachIndex<shardkit::detail::BeginUpdatesAs<Rule>>> {
    using Kernel = shardkit::engine::ForEachIndex<shardkit::detail::BeginUpdatesAs<Rule>>;
    static void run(const shardkit::Stream& stream, const Kernel& kernel) {
        host_functions::launch_updates<Rule, shardkit::Precision<double>, shardkit::Precision<float>,
                                       shardkit::Precision<shardkit::bf16>, shardkit::Precision<shardkit::fp16>>();
        host_functions::Given::all().add(typeid(Kernel));
        kernel.template on<host_functions::Kernels>(shardkit::gpu::TimelineRef(stream));
    }
};
