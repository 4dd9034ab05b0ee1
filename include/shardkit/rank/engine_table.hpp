// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verbs/communicator.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// Bytes in an engine's memory. Move-only.
/// Order:   its destructor waits for the compute stream, whose kernels may still use it, and what its owner frees
/// after it.
class EngineBytes {
  public:
    EngineBytes() noexcept = default;
    EngineBytes(Rank& rank, std::size_t size) : rank_(&rank), memory_(rank.local_buffer<std::uint8_t>(size)) {}
    EngineBytes(EngineBytes&&) noexcept = default;
    EngineBytes& operator=(EngineBytes&& other) noexcept {
        std::swap(rank_, other.rank_);
        std::swap(memory_, other.memory_);
        return *this;
    }
    /// Frees the memory. An error of the stream that nobody waited for is dropped, as a destructor cannot report it.
    ~EngineBytes() {
        if (memory_.size() == 0) { return; }
        try {
            rank_->compute_stream().synchronize();
        } catch (...) {}  // NOLINT(bugprone-empty-catch)
    }

    std::size_t size() const noexcept { return memory_.size(); }
    void* data() const noexcept { return memory_.data(); }
    void write(const void* from, std::size_t begin, std::size_t count) {
        host::AnyKernels::copy_bytes(rank_->compute_stream(), from, memory_.data() + begin, count);
    }
    void read(void* into, std::size_t begin, std::size_t count) const {
        host::AnyKernels::copy_bytes(rank_->compute_stream(), memory_.data() + begin, into, count);
    }

  private:
    Rank* rank_ = nullptr;
    HostBuffer<std::uint8_t> memory_;
};

/// A few values in an engine's memory: scalars and tables that its kernels read and write, so that the host need not
/// wait for them. It is made from host values; `span` and `data` are the engine's memory, `read` synchronizes.
/// Move-only. Ends as its bytes do.
template <class T>
class EngineTable {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    EngineTable() noexcept = default;
    EngineTable(Rank& rank, const T* values, std::size_t count) : memory_(rank, count * sizeof(T)) {
        memory_.write(values, 0, count * sizeof(T));
    }
    EngineTable(Rank& rank, std::span<const T> values) : EngineTable(rank, values.data(), values.size()) {}
    /// Makes a table of `size` values of zero bytes.
    static EngineTable zeroed(Rank& rank, std::size_t size) {
        EngineTable table;
        table.memory_ = EngineBytes(rank, size * sizeof(T));
        return table;
    }
    EngineTable(Rank& rank, const T& value) : EngineTable(rank, &value, 1) {}

    [[gnu::always_inline]] std::size_t size() const noexcept { return memory_.size() / sizeof(T); }
    [[gnu::always_inline]] T* data() const noexcept { return static_cast<T*>(memory_.data()); }
    [[gnu::always_inline]] std::span<T> span() const noexcept { return {data(), size()}; }

    /// Writes the value at `index`, in the order of the compute stream.
    void write(const T& value, std::size_t index = 0) { memory_.write(&value, index * sizeof(T), sizeof(T)); }
    /// Returns the value at `index` after all work given to the compute stream.
    T read(std::size_t index = 0) const {
        T copy{};
        memory_.read(&copy, index * sizeof(T), sizeof(T));
        return copy;
    }

  private:
    EngineBytes memory_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
