// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/event.hpp>
#include <shardkit/backend/cuda/owned_bytes.hpp>
#include <shardkit/backend/cuda/stream.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/memory/memory_copies.hpp>

namespace shardkit::gpu::detail {

/// Copies to and from a device's memory through a ring of pinned buffers, on a stream of its own.
/// Cost:    2 MiB of pinned memory, a stream and 3 events, all allocated here. Not allowed in a capture.
class PinnedCopies final : public engine::MemoryCopies {
  public:
    /// Makes an object whose copies run behind the work of `after`.
    /// @throws Error
    explicit PinnedCopies(const TimelineRef& after, SourceLocation where = SourceLocation::current())
        : PinnedCopies(after, DeviceGuard(after.device(), where), where) {}
    ~PinnedCopies() override { static_cast<void>(cudaStreamSynchronize(stream_.ref().native())); }

    std::size_t capacity() const noexcept override { return slot_bytes; }
    void begin_read(std::size_t slot, std::span<const std::byte> from) override {
        copy(slot, slots_[slot].memory.data(), from.data(), from.size(), cudaMemcpyDeviceToHost);
    }
    std::span<std::byte> finish(std::size_t slot) override {
        const Slot& used = slots_[slot];
        used.copied.synchronize(where_);
        return used.memory.span();
    }
    void begin_write(std::size_t slot, std::span<std::byte> to) override {
        copy(slot, to.data(), slots_[slot].memory.data(), to.size(), cudaMemcpyHostToDevice);
    }

  private:
    static constexpr std::size_t slot_bytes = std::size_t{1} << 20U;
    struct Slot {
        explicit Slot(SourceLocation where)
            : memory(pinned_bytes(slot_bytes, where)), copied(EventTime::none, where) {}
        OwnedBytes memory;
        Event copied;
    };

    PinnedCopies(const TimelineRef& after, const DeviceGuard&, SourceLocation where)
        : device_(after.device()), where_(where), stream_(Priority::usual, where), slots_{Slot(where), Slot(where)} {
        static_assert(slots == 2);
        const Event given(EventTime::none, where);
        check(cudaEventRecord(given.native(), after.native()), "cudaEventRecord", where);
        stream_.ref().wait(given, where);
    }

    void copy(std::size_t slot, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
        const DeviceGuard selected(device_, where_);
        const auto stream = stream_.ref();
        check(cudaMemcpyAsync(to, from, bytes, kind, stream.native()), "cudaMemcpyAsync", where_);
        stream.record(slots_[slot].copied, where_);
    }

    int device_;
    SourceLocation where_;
    Stream stream_;
    std::array<Slot, slots> slots_;
};

}  // namespace shardkit::gpu::detail
