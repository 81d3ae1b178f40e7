#pragma once
// The limits of the machine that kernels are measured against, for one thread.
#include <string>
#include <vector>

namespace gristmill::bench {

struct Roof {
  std::string name;
  double rate = 0;       ///< per second of CPU time, best of several
  double per_cycle = 0;  ///< operations (an addition or a multiplication is one) in a cycle
  double expected = 0;   ///< what the instruction set allows per cycle on a machine with two such units
};

/// Cycles per second: a chain of dependent additions.
double measure_frequency();
/// Bytes per second when reading `bytes` of huge pages in order.
double measure_read(size_t bytes);

/// float32 FMA, and the integer inner loops of the coded linears, for each instruction set this machine has.
struct Peaks {
  std::string isa;
  Roof fma;      ///< float32
  Roof nibbles;  ///< 4-bit codes: avx2 8 x vpmaddubsw summed in 16 bits, then vpmaddwd; avx512 vpdpbusd; amx tdpbsud
  Roof bytes;    ///< 8-bit codes: avx2 vpsignb, vpmaddubsw, vpmaddwd, vpaddd; avx512 vpdpbusd; amx tdpbsud
};
std::vector<Peaks> measure_peaks();

}  // namespace gristmill::bench
