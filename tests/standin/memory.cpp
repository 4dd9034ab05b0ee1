// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>

#include "state.hpp"

namespace standin {
namespace {

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool is_device(const Allocation* allocation) {
    return allocation != nullptr && allocation->type != cudaMemoryTypeHost;
}

/// Whether a range lies in part in memory that the stand-in knows: CUDA takes memory that is pinned, or not, as a
/// whole.
bool overruns(const State& s, const void* pointer, std::size_t bytes) {
    if (find_allocation(s, pointer, 1) != nullptr) { return find_allocation(s, pointer, bytes) == nullptr; }
    const auto next = s.allocations.lower_bound(address(pointer));
    return next != s.allocations.end() && next->first - address(pointer) < bytes;
}

bool direction_is_right(cudaMemcpyKind kind, bool to_device, bool from_device) {
    switch (kind) {
        case cudaMemcpyHostToHost:
            return !to_device && !from_device;
        case cudaMemcpyHostToDevice:
            return to_device && !from_device;
        case cudaMemcpyDeviceToHost:
            return !to_device && from_device;
        case cudaMemcpyDeviceToDevice:
            return to_device && from_device;
        case cudaMemcpyDefault:
            return true;
    }
    return false;
}

void report_uses(State& s, const Allocation& allocation, std::string_view call) {
    const Range range{allocation.memory.get(), allocation.bytes};
    for (const auto& stream : s.streams.all()) {
        for (const auto& operation : stream->queue) {
            if (operation->uses(range)) {
                std::ostringstream text;
                text << call << " of " << allocation.bytes << " bytes that queued work of a stream of device "
                     << stream->device << " still uses";
                s.frees_in_use.push_back(text.str());
                return;
            }
        }
    }
}

/// NCCL goes on using memory that a communicator knows, until it is deregistered or the communicator ends.
void report_registrations(State& s, const Allocation& allocation, std::string_view call) {
    const Range range{allocation.memory.get(), allocation.bytes};
    const auto inside = [&](const auto& each) { return each.second.overlaps(range); };
    for (const auto& comm : s.comms.all()) {
        if (std::any_of(comm->registrations.begin(), comm->registrations.end(), inside) ||
            std::any_of(comm->windows.begin(), comm->windows.end(),
                        [&](const auto& each) { return each.second.range.overlaps(range); })) {
            std::ostringstream text;
            text << call << " of " << allocation.bytes << " bytes that are registered with a communicator";
            s.frees_in_use.push_back(text.str());
        }
    }
}

}  // namespace

const Allocation* find_allocation(const State& s, const void* pointer, std::size_t bytes) {
    auto after = s.allocations.upper_bound(address(pointer));
    if (after == s.allocations.begin()) { return nullptr; }
    const auto& [begin, allocation] = *--after;
    const std::size_t offset = address(pointer) - begin;
    return offset < allocation.bytes && bytes <= allocation.bytes - offset ? &allocation : nullptr;
}

cudaError_t allocate(State& s, void** pointer, std::size_t bytes, cudaMemoryType type, bool by_nccl) {
    if (pointer == nullptr) { return cudaErrorInvalidValue; }
    *pointer = nullptr;
    if (const cudaError_t error = refuse_in_capture(s); error != cudaSuccess) { return error; }
    if (bytes == 0) { return cudaSuccess; }
    const int device = this_thread(s).device;
    std::size_t& used = s.device_bytes[device];
    if (type != cudaMemoryTypeHost && (used > s.device_memory || bytes > s.device_memory - used)) {
        return cudaErrorMemoryAllocation;
    }
    auto* const made =
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{NCCL_WIN_REQUIRED_ALIGNMENT}, std::nothrow));
    if (made == nullptr) { return cudaErrorMemoryAllocation; }
    std::memset(made, 0xff, bytes);  // NaN in every floating point type
    s.allocations.emplace(
        address(made), Allocation{std::unique_ptr<std::byte, Allocation::Free>(made), bytes, type, device, by_nccl});
    if (type != cudaMemoryTypeHost) {
        used += bytes;
        std::size_t& peak = s.peak_device_bytes[device];
        peak = std::max(peak, used);
    }
    *pointer = made;
    return cudaSuccess;
}

cudaError_t free_memory(State& s, Lock& lock, void* pointer, bool by_nccl, bool host, std::string_view call) {
    if (pointer == nullptr) { return cudaSuccess; }
    if (const cudaError_t error = refuse_in_capture(s); error != cudaSuccess) { return error; }
    const auto at = s.allocations.find(address(pointer));
    if (at == s.allocations.end() || at->second.by_nccl != by_nccl ||
        (at->second.type == cudaMemoryTypeHost) != host) {
        return cudaErrorInvalidValue;
    }
    if (by_nccl || host) { report_uses(s, at->second, call); }
    report_registrations(s, at->second, call);
    const int device = at->second.device;
    if (!block_until(s, lock, [&] { return s.is_broken(device) || advance_device(s, device); })) {
        return cudaErrorLaunchTimeout;
    }
    // Meanwhile other threads ran; `at` stays valid unless one of them freed the same memory.
    if (!host) { s.device_bytes[device] -= at->second.bytes; }
    s.allocations.erase(at);
    return cudaSuccess;
}

}  // namespace standin

using standin::cuda_call;
using standin::Lock;
using standin::Needs;
using standin::State;
using standin::ThreadState;

cudaError_t cudaMalloc(void** pointer, std::size_t size) {
    return cuda_call("cudaMalloc", Needs::device, [&](State& s, Lock&, ThreadState&) {
        return standin::allocate(s, pointer, size, cudaMemoryTypeDevice, false);
    });
}
cudaError_t cudaMallocManaged(void** pointer, std::size_t size, unsigned int) {
    return cuda_call("cudaMallocManaged", Needs::device, [&](State& s, Lock&, ThreadState&) {
        return standin::allocate(s, pointer, size, cudaMemoryTypeManaged, false);
    });
}
cudaError_t cudaFree(void* pointer) {
    return cuda_call("cudaFree", Needs::release, [&](State& s, Lock& lock, ThreadState&) {
        return standin::free_memory(s, lock, pointer, false, false, "cudaFree");
    });
}
cudaError_t cudaMallocHost(void** pointer, std::size_t size) {
    return cuda_call("cudaMallocHost", Needs::device, [&](State& s, Lock&, ThreadState&) {
        return standin::allocate(s, pointer, size, cudaMemoryTypeHost, false);
    });
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t size, unsigned int flags) {
    return cuda_call("cudaHostAlloc", Needs::device, [&](State& s, Lock&, ThreadState&) {
        if ((flags & ~7U) != 0) { return cudaErrorInvalidValue; }
        return standin::allocate(s, pointer, size, cudaMemoryTypeHost, false);
    });
}
cudaError_t cudaFreeHost(void* pointer) {
    return cuda_call("cudaFreeHost", Needs::release, [&](State& s, Lock& lock, ThreadState&) {
        return standin::free_memory(s, lock, pointer, false, true, "cudaFreeHost");
    });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    return cuda_call("cudaPointerGetAttributes", Needs::device, [&](State& s, Lock&, ThreadState&) {
        if (attributes == nullptr) { return cudaErrorInvalidValue; }
        void* const same = const_cast<void*>(pointer);
        const standin::Allocation* const found = standin::find_allocation(s, pointer, 1);
        *attributes = {};
        if (found == nullptr) {
            attributes->type = cudaMemoryTypeUnregistered;
            attributes->device = -2;
            attributes->hostPointer = same;
            return cudaSuccess;
        }
        attributes->type = found->type;
        attributes->device = found->device;
        attributes->devicePointer = same;
        attributes->hostPointer = found->type == cudaMemoryTypeDevice ? nullptr : same;
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return cuda_call("cudaMemcpyAsync", Needs::device, [&](State& s, Lock& lock, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const found = standin::find_stream(s, stream, error);
        if (error != cudaSuccess || bytes == 0) { return error; }
        const bool to_device = standin::is_device(standin::find_allocation(s, to, bytes));
        const bool from_device = standin::is_device(standin::find_allocation(s, from, bytes));
        const standin::Range target{to, bytes};
        const standin::Range source{from, bytes};
        if (to == nullptr || from == nullptr || standin::overruns(s, to, bytes) ||
            standin::overruns(s, from, bytes) || target.overlaps(source) ||
            !standin::direction_is_right(kind, to_device, from_device)) {
            return cudaErrorInvalidValue;
        }
        if (to_device != from_device) {
            standin::Copied& copied = s.copied[found->device];
            (to_device ? copied.to_device : copied.to_host) += bytes;
            ++copied.calls;
            if (standin::find_allocation(s, to_device ? from : to, bytes) == nullptr) { copied.pageable += bytes; }
        }
        return standin::submit(s, lock, *found, [=](State& state, CUstream_st& in) {
            standin::push(state, in,
                          std::make_unique<standin::Work>([=] { std::memcpy(to, from, bytes); },
                                                          std::vector<standin::Range>{target, source}));
        });
    });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return cuda_call("cudaMemsetAsync", Needs::device, [&](State& s, Lock& lock, ThreadState&) {
        cudaError_t error = cudaSuccess;
        CUstream_st* const found = standin::find_stream(s, stream, error);
        if (error != cudaSuccess || bytes == 0) { return error; }
        if (standin::find_allocation(s, to, bytes) == nullptr) { return cudaErrorInvalidValue; }
        return standin::submit(s, lock, *found, [=](State& state, CUstream_st& in) {
            standin::push(state, in,
                          std::make_unique<standin::Work>([=] { std::memset(to, value, bytes); },
                                                          std::vector<standin::Range>{{to, bytes}}));
        });
    });
}
