// CRC-32 of ZIP records (IEEE 802.3, reflected, polynomial 0xedb88320).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace evalcar::checkpoint {

/// CRC-32 of `bytes`, continuing from the CRC of what came before (0 at the start). By
/// carry-less multiplication where the CPU has it, else by tables, 16 bytes a step. Thread-safe.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// The CRC-32 of two texts one after the other, from the CRC of each and the length of the second.
std::uint32_t combine_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

}  // namespace evalcar::checkpoint
