// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/device.hpp>
#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/shared/piece_list.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::gpu::detail {

/// The source of an Arena's chunks: DeviceChunks (cudaMalloc), or the allocator of a communication library.
class ChunkSource : shardkit::detail::NotCopied {
  public:
    virtual ~ChunkSource() = default;

    /// Allocates memory for `bytes` > 0, aligned to at least 256 bytes. Throws its allocator's error.
    virtual void* allocate(std::size_t bytes, SourceLocation where) = 0;
    /// Frees what `allocate` returned.
    virtual void free(void* chunk) noexcept = 0;
};

/// Allocates pieces, of multiples of 512 bytes, out of a few large chunks: the first free piece that is large enough,
/// in the order of chunks and offsets. The same requests in the same order give the same chunk and offset on every
/// rank, as registered memory and symmetric windows require.
/// A freed piece merges with its free neighbours and may be reused at once: work that uses it must have ended. Chunks
/// are freed with the arena. The source must outlive the arena, and the arena its pieces.
/// Cost:    a chunk of max(chunk_bytes, the request rounded up) when no free piece fits; otherwise only host work,
///          linear in the number of pieces. Used at the construction of containers, not inside a step.
/// Threads: one thread at a time.
class Arena : shardkit::detail::NotCopied {
  public:
    static constexpr std::size_t granularity = 512;

    struct Chunk {
        std::byte* data;
        std::size_t bytes;
    };

    /// Makes an arena without chunks.
    /// @throws std::invalid_argument when chunk_bytes is 0; std::length_error when it exceeds the address space
    Arena(ChunkSource& source, std::size_t chunk_bytes, SourceLocation where = SourceLocation::current())
        : source_(source), chunk_bytes_(rounded(chunk_bytes, where)) {
        if (chunk_bytes == 0) { throw_invalid_argument(where, "Arena: chunk_bytes is 0, expected at least 1"); }
    }
    ~Arena() {
        for (const Chunk& chunk : chunks_) { source_.free(chunk.data); }
    }

    /// Allocates `bytes`; their contents are undefined. Zero bytes give a null pointer.
    /// @throws std::length_error when the bytes exceed the address space; what the source throws. Nothing has changed
    /// then.
    void* allocate(std::size_t bytes, SourceLocation where = SourceLocation::current()) {
        if (bytes == 0) { return nullptr; }
        const std::size_t needed = rounded(bytes, where);
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            if (void* const taken = take(c, needed)) { return taken; }
        }
        add_chunk(std::max(chunk_bytes_, needed), where);
        return take(chunks_.size() - 1, needed);
    }

    /// Frees a piece.
    /// @pre `memory` is null or came from `allocate` and was not freed since
    void free(void* memory) noexcept {
        if (memory == nullptr) { return; }
        const auto* const address = static_cast<const std::byte*>(memory);
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            if (!contains(chunks_[c], address)) { continue; }
            used_bytes_ -= pieces_[c].give_back(static_cast<std::size_t>(address - chunks_[c].data));
            return;
        }
    }

    /// Returns the chunks in the order of their allocation, for registration by a communication library.
    std::span<const Chunk> chunks() const noexcept { return chunks_; }
    /// Returns the allocated bytes, rounded up to the granularity.
    std::size_t used_bytes() const noexcept { return used_bytes_; }
    /// Returns the most that they have been.
    std::size_t most_used_bytes() const noexcept { return most_used_bytes_; }

  private:
    static std::size_t rounded(std::size_t bytes, SourceLocation where) {
        constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
        if (bytes > most - (granularity - 1)) {
            throw std::length_error(shardkit::detail::concat("Arena: ", bytes, " bytes exceed the address space (",
                                                             where.file, ":", where.line, ")"));
        }
        return (bytes + granularity - 1) / granularity * granularity;
    }
    static bool contains(const Chunk& chunk, const std::byte* address) noexcept {
        return !std::less<>()(address, chunk.data) && std::less<>()(address, chunk.data + chunk.bytes);
    }

    void add_chunk(std::size_t bytes, SourceLocation where) {
        chunks_.reserve(chunks_.size() + 1);
        pieces_.reserve(chunks_.size() + 1);
        shardkit::detail::PieceList whole(bytes);
        chunks_.push_back({static_cast<std::byte*>(source_.allocate(bytes, where)), bytes});
        pieces_.push_back(std::move(whole));
    }

    /// Allocates a piece of a chunk, or returns null if the chunk has no free piece that is large enough.
    void* take(std::size_t c, std::size_t bytes) {
        const auto offset = pieces_[c].take(bytes);
        if (!offset) { return nullptr; }
        used_bytes_ += bytes;
        most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
        return chunks_[c].data + *offset;
    }

    ChunkSource& source_;
    std::size_t chunk_bytes_;
    std::size_t used_bytes_ = 0;
    std::size_t most_used_bytes_ = 0;
    std::vector<Chunk> chunks_;
    std::vector<shardkit::detail::PieceList> pieces_;  // one for each chunk
};

/// Allocates chunks on one device with cudaMalloc, whichever device is currently selected.
class DeviceChunks final : public ChunkSource {
  public:
    explicit DeviceChunks(int device) noexcept : device_(device) {}

    /// Allocates a chunk with cudaMalloc.
    /// @throws OutOfMemory; Error
    void* allocate(std::size_t bytes, SourceLocation where) override {
        const DeviceGuard guard(device_, where);
        void* chunk = nullptr;
        const cudaError_t code = cudaMalloc(&chunk, bytes);
        if (code == cudaErrorMemoryAllocation) {
            static_cast<void>(cudaGetLastError());
            throw OutOfMemory("cudaMalloc", bytes, where);
        }
        check(code, "cudaMalloc", where);
        return chunk;
    }
    void free(void* chunk) noexcept override { static_cast<void>(cudaFree(chunk)); }

  private:
    int device_;
};

}  // namespace shardkit::gpu::detail
