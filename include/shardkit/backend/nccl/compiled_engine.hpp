// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __CUDACC__
#include <shardkit/backend/cub/kernels.cuh>
#else
#include <shardkit/backend/cub/kernels.hpp>
#endif

#include <memory>
#include <utility>

#include <shardkit/backend/nccl/engine.hpp>
#include <shardkit/compiled/core_model.hpp>
#include <shardkit/compiled/core_rank.hpp>

// NCCL's engine in the compiled core.

#ifndef SHARDKIT_COMPILED_KERNELS
/// The Kernels of the core's engine over NCCL: see nccl::Engine.
#define SHARDKIT_COMPILED_KERNELS ::shardkit::gpu::Kernels
#endif

namespace shardkit::compiled SHARDKIT_CHECKED_BUILD {

using NcclEngine = nccl::Engine<SHARDKIT_COMPILED_KERNELS>;
template <>
const EngineCore& engine_core<NcclEngine>() noexcept;
/// Returns the same, for the source files that have a part of it each.
EngineCore& nccl_core() noexcept;
/// Gives it a part, when the program starts.
template <template <class> class Of, class Part>
bool add_nccl_part(const Part* EngineCore::*part) noexcept {
    static const Of<NcclEngine> of_nccl;
    nccl_core().*part = &of_nccl;
    return true;
}

template <>
struct CommunicatorValue<NcclEngine::Communicator> {
    static host::Communicator to(const NcclEngine::Communicator& comm) { return host::Communicator(comm.verbs()); }
    static NcclEngine::Communicator from(const host::Communicator& comm, SourceLocation where) {
        auto verbs = std::dynamic_pointer_cast<const nccl::Communicator>(comm.verbs());
        if (verbs == nullptr) {
            throw_usage_error(where, "a communicator of the engine ", comm.engine_name(),
                              ", expected one of the engine nccl");
        }
        return NcclEngine::Communicator(std::move(verbs));
    }
};
extern template class AnyOptimizer<NcclEngine, RuleOptimizer>;
extern template class ContextOf<NcclEngine>;
extern template class GroupsOf<NcclEngine>;

}  // namespace SHARDKIT_CHECKED_BUILD
