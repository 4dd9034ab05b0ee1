// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <shardkit/rank/context.hpp>

namespace shardkit::detail {

/// A few values in an engine's memory: scalars and tables that its kernels read and write, so that the host need not
/// wait for them. It is made from host values; `span` and `data` are the engine's memory, `read` synchronizes.
/// Move-only.
/// Order:   its destructor waits for the compute stream, whose kernels may still use it, and what its owner frees
/// after it.
template <class Engine, class T>
class EngineTable {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    EngineTable() noexcept = default;
    EngineTable(Context<Engine>& context, std::span<const T> values)
        : context_(&context),
          memory_(context.template local_buffer<std::uint8_t>(values.size_bytes())),
          size_(values.size()) {
        Engine::Kernels::copy_in(context.compute_stream(), values, span());
    }
    /// Makes a table of `size` values of zero bytes.
    static EngineTable zeroed(Context<Engine>& context, std::size_t size) {
        EngineTable table;
        table.context_ = &context;
        table.memory_ = context.template local_buffer<std::uint8_t>(size * sizeof(T));
        table.size_ = size;
        return table;
    }
    EngineTable(Context<Engine>& context, const T& value) : EngineTable(context, std::span<const T>(&value, 1)) {}
    EngineTable(EngineTable&& other) noexcept
        : context_(std::exchange(other.context_, nullptr)),
          memory_(std::move(other.memory_)),
          size_(std::exchange(other.size_, 0)) {}
    EngineTable& operator=(EngineTable&& other) noexcept {
        std::swap(context_, other.context_);
        std::swap(memory_, other.memory_);
        std::swap(size_, other.size_);
        return *this;
    }
    EngineTable(const EngineTable&) = delete;
    EngineTable& operator=(const EngineTable&) = delete;
    /// Frees the memory. An error of the stream that nobody waited for is dropped, as a destructor cannot report it.
    ~EngineTable() {
        if (context_ == nullptr) { return; }
        try {
            context_->compute_stream().synchronize();
        } catch (...) {}  // NOLINT(bugprone-empty-catch)
    }

    std::size_t size() const noexcept { return size_; }
    T* data() const noexcept { return static_cast<T*>(static_cast<void*>(memory_.data())); }
    std::span<T> span() const noexcept { return {data(), size_}; }

    /// Writes the value at `index`, in the order of the compute stream.
    void write(const T& value, std::size_t index = 0) {
        Engine::Kernels::copy_in(context_->compute_stream(), std::span<const T>(&value, 1), span().subspan(index, 1));
    }
    /// Returns the value at `index` after all work given to the compute stream.
    T read(std::size_t index = 0) const { return context_->read(data() + index); }

  private:
    Context<Engine>* context_ = nullptr;
    typename Engine::template Buffer<std::uint8_t> memory_;
    std::size_t size_ = 0;
};

}  // namespace shardkit::detail
